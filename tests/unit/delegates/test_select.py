"""The rule of choice, on rows made up: fastest that agrees, and a reason with numbers for each other one."""

from __future__ import annotations

from typing import Any

import pytest

from delegates.select import TIE, Entry, Measured, choose


def row(name: str, p50: float | None, **more: Any) -> Measured:
    given = {"verdict": "agrees", "threads": 1, "runtime": "r", "delegate": name, **more}
    return Measured(label=name, p50_us=p50, **given)


def cpu(p50: float | None, **more: Any) -> Entry:
    return Entry(row("cpu", p50, **more), cpu=True)


def vendor(p50: float | None, name: str = "vx", **more: Any) -> Entry:
    return Entry(row(name, p50, **more), cpu=False)


def test_the_fastest_is_chosen_whatever_it_takes() -> None:
    """A partial mapping that is quicker wins; the others say by how much they are slower."""
    choice = choose([cpu(87.1), vendor(76.0, mapping="partial"), vendor(80.0, "gpu", mapping="full")])
    assert (choice.chosen, choice.stand_in) == (1, 0)
    assert [one.verdict for one in choice.rows] == ["slower", "chosen", "slower"]
    assert choice.rows[0].reason == "P50 87.1 µs against 76.0 µs"


def test_one_that_does_not_agree_is_out_however_fast() -> None:
    """Its verdict and reason stay as they were found."""
    wrong = vendor(1.0, verdict="refused", reason="off by 3")
    choice = choose([wrong, cpu(50.0)])
    assert choice.chosen == 1
    assert choice.rows[0] == wrong.row


@pytest.mark.parametrize(
    ("first", "second", "chosen", "why"),
    [
        (cpu(100.0, threads=2), cpu(104.0), 1, "fewer threads go first"),
        (vendor(100.0), cpu(104.0), 1, "the CPU goes first"),
        (vendor(100.0, "gpu"), vendor(97.0), 0, "the order given decides"),
        (vendor(100.0, threads=2), cpu(103.0, threads=2), 1, "the CPU goes first"),
    ],
)
def test_within_a_few_percent_the_simpler_one_is_chosen(first: Entry, second: Entry, chosen: int, why: str) -> None:
    """Fewer threads, then the CPU in process, then the order; the reason says which of them it was."""
    choice = choose([first, second])
    assert choice.chosen == chosen
    assert choice.rows[1 - chosen].reason.endswith(f"within 5%: {why}")


def test_beyond_the_tie_time_decides() -> None:
    """Just more than five percent is slower, threads or not."""
    assert choose([cpu(100.0, threads=4), cpu(100.0 * (1 + TIE) + 0.1)]).chosen == 0


def test_what_was_not_asked_for_only_stands_in() -> None:
    """The CPU is ten times as fast and was not asked for: the accelerator serves, the CPU waits."""
    spare = Entry(row("cpu", 5.0), cpu=True, asked=False)
    choice = choose([vendor(50.0), spare])
    assert (choice.chosen, choice.stand_in) == (0, 1)
    assert choice.rows[1].verdict == "stand-in"


def test_it_serves_when_nothing_asked_for_can() -> None:
    """The accelerator is refused: the CPU is chosen although nobody named it."""
    spare = Entry(row("cpu", 5.0), cpu=True, asked=False)
    choice = choose([vendor(1.0, verdict="refused"), spare])
    assert (choice.chosen, choice.rows[1].verdict) == (1, "chosen")


def test_the_stand_in_is_the_best_of_the_cpu() -> None:
    """Of two runtimes the faster one, also when an accelerator is chosen."""
    assert choose([vendor(1.0), cpu(50.0), cpu(20.0)]).stand_in == 2


def test_nothing_that_agrees_is_no_choice() -> None:
    """No place is chosen, and no verdict is changed."""
    rows = [vendor(None, verdict="failed"), cpu(None, verdict="failed")]
    choice = choose(rows)
    assert (choice.chosen, choice.stand_in) == (None, None)
    assert choice.rows == tuple(entry.row for entry in rows)
