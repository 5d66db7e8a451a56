"""The search for the knee: against devices whose knee is arithmetic, and one that is real."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support import benchdevice
from support.benchdevice import KnownDevice, case, connected

from edged.bench import knee, knee_words
from edged.bench.ledger import numbers
from edged.bench.plan import OpenLoad
from edged.bench.session import Session

BOUND_MS = 10.0


def run_at(rate: float, p99_ms: float, **changes: Any) -> dict[str, Any]:
    """A run as the trial reports it."""
    good = {"missing": 0, "unsent": 0, "doubled": 0, "unfinished": 0, "errors": {}, "ok": 100}
    speeds = {"ok_per_s": rate, "sent_per_s": rate}
    return {**good, **speeds, "latency": {"p99_ms": p99_ms}, "late_sends": {"p99_ms": 0.1}, **changes}


class Sharp:
    """A device that holds up to `limit` and no further; `unlucky`: the trials (by number) that fail all the same."""

    def __init__(self, limit: float, unlucky: tuple[int, ...] = ()) -> None:
        self.limit, self.unlucky, self.rates = limit, unlucky, list[float]()

    def __call__(self, rate: float) -> dict[str, Any]:
        self.rates.append(rate)
        good = rate <= self.limit and len(self.rates) - 1 not in self.unlucky
        return run_at(rate, 5.0 if good else 50.0)


@pytest.mark.parametrize("limit", [37.0, 250.0, 990.0, 1090.0])
def test_the_knee_is_found_within_five_percent(limit: float) -> None:
    """Wherever it lies below the saturation; the last trials are the confirmations, at the very rate that is told."""
    device = Sharp(limit)
    found = knee.Search(device, BOUND_MS).find(1000.0)
    assert 0.94 * limit <= found["rate"] <= limit
    assert device.rates[-knee.CONFIRMATIONS :] == [found["rate"]] * knee.CONFIRMATIONS
    assert found["above"] > limit
    assert found["why"] == "P99 50 ms"
    assert len(device.rates) <= 14


def test_a_knee_above_the_closed_loop_is_found_too() -> None:
    """A closed loop with too few in flight said 100 a second; the device holds 700."""
    found = knee.Search(Sharp(700.0), BOUND_MS).find(100.0)
    assert 0.94 * 700 <= found["rate"] <= 700


def test_a_rate_that_held_by_luck_is_not_the_knee() -> None:
    """The first confirmation fails: the search goes on below, and confirms again."""
    lucky = Sharp(500.0)
    first = knee.Search(lucky, BOUND_MS).find(1000.0)
    at = len(lucky.rates) - knee.CONFIRMATIONS
    device = Sharp(500.0, unlucky=(at,))
    found = knee.Search(device, BOUND_MS).find(1000.0)
    assert found["rate"] < first["rate"]
    assert found["confirmations"] == knee.CONFIRMATIONS
    assert device.rates.count(found["rate"]) == 1 + knee.CONFIRMATIONS


def test_where_nothing_holds_there_is_no_knee() -> None:
    """It gives up near zero, and says what was wrong; a closed loop without answers is no place to begin."""
    found = knee.Search(Sharp(0.0), BOUND_MS).find(1000.0)
    assert (found["rate"], found["confirmations"], found["why"]) == (None, 0, "P99 50 ms")
    assert found["above"] < 60
    assert knee.Search(Sharp(10.0), BOUND_MS).find(0.0)["rate"] is None


def test_an_interrupted_search_confirms_nothing() -> None:
    """What held once is not told as the knee."""
    trials = iter([run_at(1, 5.0), None])
    found = knee.Search(lambda _rate: next(trials), BOUND_MS).find(1000.0)
    assert found["rate"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"missing": 2}, "2 answers missing"),
        ({"unsent": 1}, "1 requests not sent"),
        ({"doubled": 1}, "1 answers doubled"),
        ({"errors": {"RESOURCE_EXHAUSTED": 3}}, "3 answers RESOURCE_EXHAUSTED"),
        ({"ok": 0}, "no answer"),
        ({"late_sends": {"p99_ms": 6.0}}, "this generator was late"),
        ({"ok_per_s": 90.0}, "answered 90 of 100"),
        ({"latency": {"p99_ms": 10.5}}, "P99 10.5 ms"),
    ],
)
def test_what_does_not_hold(changes: dict[str, Any], said: str) -> None:
    """A rate holds only with every answer, no error, its P99 within the bound, and a generator on time."""
    wrong = knee.trouble(run_at(100.0, 9.9, **changes), BOUND_MS)
    assert wrong.startswith(said) if said else wrong == ""


KEPT = "kept its P99 within 10 ms, every request answered without an error"


def test_the_knee_in_words() -> None:
    """What it is, how often it held, and what was tried up to which failure."""
    found = knee.Search(Sharp(500.0), BOUND_MS).find(1000.0)
    rate, above = f"{found['rate']:.0f}", f"{found['above']:.0f}"
    assert knee_words.headline(found) == f"{rate}/s, the highest rate tried that {KEPT} (3 runs)"
    tried = {one["rate"] for one in found["tried"]}
    assert knee_words.tried(found) == (
        f"tried: {len(tried)} rates, {min(tried):.0f}/s to {max(tried):.0f}/s; "
        f"the lowest that failed {above}/s: P99 50 ms; in a closed loop 1,000/s"
    )
    assert [one["why"] for one in found["tried"] if one["rate"] == found["rate"]] == [""] * 3


def test_a_knee_that_the_generator_limits_is_at_least() -> None:
    """Beyond 300 a second this program is late itself: the device may hold more, so no more is claimed."""

    def trial(rate: float) -> dict[str, Any]:
        return run_at(rate, 5.0, late_sends={"p99_ms": 0.1 if rate <= 300 else 9.0})

    found = knee.Search(trial, BOUND_MS).find(1000.0)
    assert found["at_least"]
    told = knee_words.headline(found)
    assert told.startswith(f"at least {found['rate']:.0f}/s: it {KEPT} (3 runs), and beyond it the device was not")
    assert told.endswith("this generator was late itself (P99 9 ms)")
    assert not knee.Search(Sharp(500.0), BOUND_MS).find(1000.0)["at_least"]
    lossy = knee.Search(lambda rate: trial(rate) | {"missing": int(rate > 300)}, BOUND_MS).find(1000.0)
    assert not lossy["at_least"]


def test_where_the_highest_rate_tried_still_holds_it_is_at_least() -> None:
    """Nothing failed, so nothing is known beyond it."""
    found = knee.Search(Sharp(500.0), BOUND_MS).find(1000.0) | {"at_least": True, "above": None, "why": ""}
    assert knee_words.headline(found).endswith("(3 runs), and no rate tried failed")
    assert "failed" not in knee_words.tried(found)


def test_no_knee_in_words() -> None:
    """Nothing held; something held once and the search was interrupted; nothing was tried."""
    nothing = knee.Search(Sharp(0.0), BOUND_MS).find(1000.0)
    assert knee_words.headline(nothing) == f"none: no rate tried {KEPT}"
    assert ": P99 50 ms; in a closed loop" in knee_words.tried(nothing)
    trials = iter([run_at(1, 5.0), None])
    cut = knee.Search(lambda _rate: next(trials), BOUND_MS).find(1000.0)
    assert knee_words.headline(cut) == f"none: no rate was confirmed by further runs; 550/s {KEPT}, once"
    assert knee_words.tried(cut) == "tried: 1 rate, 550/s; in a closed loop 1,000/s"
    silent = knee.Search(Sharp(10.0), BOUND_MS).find(0.0)
    assert knee_words.headline(silent) == "none: no rate was tried: nothing was answered without an error"
    assert knee_words.tried(silent) == "tried: no rate; in a closed loop 0/s"


def test_the_knee_of_a_device_of_known_service_time() -> None:
    """One that takes 10 ms saturates at 100 a second; constant arrivals within a P99 of 60 ms hold nearly all of it."""
    with KnownDevice(benchdevice.takes(0.01)) as device, connected(device) as target:
        session = Session(target, numbers(), threading.Event(), lambda _case, _tally: None)
        runs, found = session.knee(case(OpenLoad(1), 0.6), 60.0)
    assert found["saturation_per_s"] <= 100
    assert found["rate"] is not None
    assert 40 <= found["rate"] <= 105
    assert [run["load"]["kind"] for run in runs] == ["open"] * (len(runs) - 1) + ["closed"]
