"""The table shows what was measured, marks what rests on few samples, and draws in place only on a terminal."""

from __future__ import annotations

import io
import re

import pytest

from converters.demo import table
from converters.demo.verdict import Figures, Stream


def figures(n: int = 1500) -> Figures:
    return Figures(
        wanted=1000,
        expected_requests=1000,
        stream=Stream(expected=1000, answered=500, right=499, samples=50_000),
        ways={
            "MQTT 5, raw": {
                "n": 20, "right": 20, "different": 0, "errors": {},
                "p50_us": 1000, "p90_us": 2000, "p99_us": 3000, "max_us": 4000,
            }
        },
        latency={"total": {"n": n, "p50_us": 210, "p90_us": 1500, "p99_us": 12_345, "max_us": 20_000}},
        facts={"model": "har v1", "engine": "LiteRT, cpu", "rss_bytes": 50 * 2**20},
        seconds=20.0,
    )  # fmt: skip


def test_a_row_gives_milliseconds_in_the_order_of_the_columns() -> None:
    """Microseconds of the daemon become milliseconds; n comes first."""
    (row,) = [line for line in table.lines(figures()) if line.startswith("  total")]
    assert row.split() == ["total", "1500", "0.210", "1.50", "12.3", "20.0"]


def test_percentiles_of_few_samples_are_marked_and_the_maximum_is_not() -> None:
    """A P99 of 20 samples is no P99; the largest value seen is what it is."""
    (row,) = [line for line in table.lines(figures()) if line.startswith("  MQTT 5")]
    assert row.split()[-5:] == ["20", "1.00*", "2.00*", "3.00*", "4.00"]
    assert "* fewer than 100 samples" in table.lines(figures())
    many = figures()
    many.ways = {}
    assert "*" not in "".join(table.lines(many))


def test_counts_rates_and_facts_are_shown() -> None:
    """Answers, accuracy, throughput and memory stand under the table."""
    text = "\n".join(table.lines(figures()))
    assert "500/1000 windows answered, accuracy 0.998, 0 errors; 2500 samples/s" in text
    assert "20 answered, accuracy 1.000, 0 errors; 1 requests/s" in text
    assert re.search(r"memory +50 MiB", text)
    assert re.search(r"engine +LiteRT, cpu", text)
    assert "broker" not in text


def test_before_the_first_metrics_there_is_a_table_too() -> None:
    """Nothing measured yet is no crash."""
    empty = Figures(wanted=1, expected_requests=1)
    assert "0/0 windows answered" in "\n".join(table.lines(empty))
    assert table.summary(empty) == "0/0 windows, accuracy -"
    assert [line for line in table.lines(empty) if "accuracy -" in line][1].startswith("requests")


def test_the_end_says_what_the_figures_mean() -> None:
    """Few recordings, often; a pace that was set; what the converter warned of. Not before the end."""
    out, known = io.StringIO(), figures()
    known.facts |= {"recordings": 40, "sensors": 8, "warnings": ["train.npz: only 40 samples"]}
    screen = table.Screen(out)
    screen.show(known)
    assert "note" not in out.getvalue()
    screen.final(known)
    assert "40 recordings, each replayed 25 times, by 8 sensors together" in out.getvalue()
    assert "samples/s and requests/s are no capacity" in out.getvalue()
    assert "`edged convert` warns: train.npz: only 40 samples" in out.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_redrawn_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second table goes back by exactly the lines of the first."""
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    screen = table.Screen(out)
    screen.show(figures())
    height = out.getvalue().count("\n")
    assert "\x1b" not in out.getvalue()
    screen.show(figures(1600))
    assert f"\x1b[{height}F\x1b[J" in out.getvalue()
    screen.final(figures(1700))
    screen.say("demo: PASS")
    assert out.getvalue().endswith("demo: PASS\n")
    assert out.getvalue().count("\x1b[J") == 2


def test_elsewhere_there_are_no_control_characters_and_few_lines() -> None:
    """A log gets one summary line every few seconds, and the whole table once."""
    out = io.StringIO()
    screen = table.Screen(out)
    for _ in range(5):
        screen.show(figures())
    assert out.getvalue() == "500/1000 windows, accuracy 0.998, P99 12.3 ms\n"
    screen.final(figures())
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("  total") == 1
