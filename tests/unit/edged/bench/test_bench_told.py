"""What a person and CI read of a run: options, document, table and verdict."""

from __future__ import annotations

import argparse
import io
import json

import pytest
from support import benchruns

from edged import cli
from edged.bench import host, options, table, verdict
from edged.commands._bench_told import Ticker
from edged.commands.progress import Progress
from edged.errors import UsageError
from edged.latency import Histogram


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", action="append", default=[])
    options.add(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        ((), ["100/s"]),
        (("--rate", "250"), ["250/s"]),
        (("--rates", "50,100,0.5"), ["50/s", "100/s", "0.5/s"]),
        (("--ramp", "50:200:50"), ["50/s", "100/s", "150/s", "200/s"]),
        (("--ramp", "1:2:0.1"), [f"{1 + i / 10:g}/s" for i in range(11)]),
        (("--rate", "9", "--arrivals", "poisson"), ["9/s poisson"]),
        (("--closed",), ["closed, 1 in flight"]),
        (("--closed", "--concurrency", "1,8"), ["closed, 1 in flight", "closed, 8 in flight"]),
        (("--every", "10s"), ["every 10 s"]),
    ],
)
def test_loads(words: tuple[str, ...], labels: list[str]) -> None:
    assert [load.label for load in options.loads(parsed(*words))] == labels


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), (10, 1, 0)),
        (("--duration", "30m", "--warmup", "500ms"), (1800, 0.5, 0)),
        (("--every", "10s", "--warmup", "50"), (120, 0, 50)),
        (("--find-knee", "--p99-ms", "9", "--warmup", "0"), (5, 0, 0)),
        (("--duration", "2"), (2, 1, 0)),
    ],
)
def test_spans(words: tuple[str, ...], seconds: tuple[float, float, int]) -> None:
    found = options.span(parsed(*words))
    assert (found.seconds, found.warmup_s, found.warmup_requests) == seconds


@pytest.mark.parametrize(
    "words",
    [
        ("--duration", "0"), ("--duration", "10 s"), ("--duration", "-1s"), ("--duration", "1e9h"), ("--rate", "0"),
        ("--rate", "nan"), ("--rate", "1,,2"), ("--ramp", "5:1:1"), ("--ramp", "1:2"), ("--ramp", "1:1e6:0.001"),
        ("--qos", "3"), ("--qos", ""), ("--payload", "0"), ("--payload", "64,x"), ("--concurrency", "0"),
        ("--rate", "5", "--closed"), ("--every", "1s", "--find-knee"), ("--warmup", "x"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """With the option's name, by argparse itself."""
    with pytest.raises(SystemExit) as caught:
        parsed(*words)
    assert caught.value.code == 2
    assert "error: argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--concurrency", "4"), ("--find-knee",), ("--p99-ms", "5"), ("--closed", "--arrivals", "poisson"),
        ("--find-knee", "--p99-ms", "5", "--qos", "0,1"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        options.loads(parsed(*words))


@pytest.mark.parametrize(
    "words", [("--input", "a", "--payload", "5"), ("--shape", "1", "--payload", "5"), ("--dtype", "int8")]
)
def test_one_source_of_payloads(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        options.wish(parsed(*words), [])


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "m"), ("--device", "d"), ("--loopback",), ("--loopback", "-c", "a", "--bundle", "b"),
        ("--device", "d", "--model", "m", "--bundle", "b"), ("--rate", "x"),
    ],
)  # fmt: skip
def test_the_command_says_what_it_lacks(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and what to add, before anything is started."""
    assert cli.main(["bench", *words]) == 2
    assert capsys.readouterr().out == ""


def test_the_table_tells_a_run() -> None:
    """Its figures are those of the histogram, with a mark where a percentile has too few samples."""
    found = benchruns.sweep()
    where, _, *lines = table.text(found).splitlines()
    assert where == "press-07 at 127.0.0.1:1883, MQTT 5"
    assert lines[0].split() == ["n", "asked/s", "ok/s", "errors", "missing", "P50", "P90", "P99", "P99.9", "max", "ms"]
    first = found["runs"][0]
    assert first["label"] in lines[1]
    exact = Histogram.decode(first["latency"]["histogram"])
    assert table.milliseconds((exact.percentile(99) or 0) / 1e6) in lines[1]
    assert "*" in lines[1]
    assert "mean ms by stage" in table.text(found)
    assert "100/s: this generator was late itself" in table.text(found)


def test_a_run_tells_idle_minutes_and_process() -> None:
    """What a row has no cell for is in lines below it."""
    told = table.text(benchruns.soak())
    assert "P99 of the first minute" in told
    assert "RSS 10.0 MiB → 12.0 MiB, threads 7 → 7, descriptors 20 → 21" in told
    assert "after idle P50" in table.text(benchruns.sparse())
    assert "\nknee: 100/s, the highest rate tried that kept its P99 within 20 ms" in table.text(benchruns.knee())


def test_names_are_what_differs() -> None:
    """Runs of one model and one payload are told apart by their load; what is the same stands above."""
    runs = benchruns.sweep()["runs"]
    assert table.names(runs) == ["50/s", "100/s", "200/s"]
    assert table.common(runs) == "har, 64 B, QoS 0"
    assert table.names(runs[:1]) == ["50/s"]


def test_the_verdict() -> None:
    """Missing and doubled answers always fail; a bound fails for a P99 over it, and for errors, which have no P99."""
    found = benchruns.sweep()
    assert verdict.failures(found, None) == []
    assert verdict.failures(found, 1e6) == []
    assert [line.partition(": ")[2] for line in verdict.failures(found, 0.001)] == [
        f"P99 {run['latency']['p99_ms']:.3g} ms is over 0.001 ms" for run in found["runs"]
    ]
    run = found["runs"][0]
    run |= {"missing": 1, "doubled": 2, "errors": {"INTERNAL": 3}}
    assert [line.partition(": ")[2] for line in verdict.failures(found, None)] == [
        "1 request without an answer", "2 answers came twice",
    ]  # fmt: skip
    assert "3 requests answered with an error" in verdict.failures(found, 1e6)[-1]
    nothing = benchruns.knee()
    nothing["knee"]["rate"] = None
    assert verdict.failures(nothing, None) == ["no rate holds a P99 within 20 ms"]
    # Beyond the knee requests fail: that is what the search looks for.
    assert verdict.failures(benchruns.knee() | {"runs": found["runs"]}, 0.001) == []


def test_a_password_in_the_command_is_not_written_down() -> None:
    """Whoever gets the report does not get the broker."""
    words = ["edged", "bench", "--broker", "mqtt://ann:se:cr@et@broker:1883", "--model", "a b"]
    told = host.command(words)
    assert "cr@" not in told
    assert "se:" not in told
    assert told.endswith("--model 'a b'")
    assert "ann" in told


def test_the_host_is_described() -> None:
    """What two runs are compared by is there, or None."""
    found = host.facts()
    assert found.keys() >= {*host.COMPARED, "mhz", "load", "python", "edged", "numpy", "paho-mqtt"}
    assert found["cores_usable"] <= found["cores"]
    json.dumps(found)


def test_progress_is_for_a_terminal_only() -> None:
    """Into a file it writes nothing."""
    stream = io.StringIO()
    ticker = Ticker(Progress(stream))
    ticker.start()
    ticker.done()
    assert stream.getvalue() == ""
