"""The knee: the highest rate tried that is answered in full, without an error, with its P99 within a bound.

Where it may lie is told by a closed loop, which saturates the device; then the rate is halved in, and what holds is
confirmed by further runs, for a single run near the knee holds by luck. Where a confirmation fails the search goes on
below.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edged.bench.document import Doc

CONFIRMATIONS = 2
# The answer is this near to the truth, if the truth stands still.
_NEAR = 0.05
_MOST_TRIALS = 24
# Below this share of the saturation nobody looks for a knee any more.
_LEAST = 0.02
# Above what a closed loop reached: it may have had too few in flight.
_ABOVE = 1.1
# So much of the asked rate must have been sent and answered, for this to be that rate.
_ACHIEVED = 0.98
# A generator that is late by so much of the bound measures itself.
_LATE = 0.5
_OWN_FAULT = "this generator was late itself"

_LOST = {"missing": "answers missing", "unsent": "requests not sent", "doubled": "answers doubled"}


def trouble(run: Doc, p99_ms: float) -> str:
    """Return "" when a run had its P99 within the bound, no loss and no error, else what is wrong."""
    lost = [f"{run[key]} {words}" for key, words in _LOST.items() if run[key]]
    if lost:
        return ", ".join(lost)
    if run["errors"]:
        return ", ".join(f"{count} answers {code}" for code, count in sorted(run["errors"].items()))
    if not run["ok"]:
        return "no answer"
    if run["late_sends"]["p99_ms"] > _LATE * p99_ms:
        return f"{_OWN_FAULT} (P99 {run['late_sends']['p99_ms']:.3g} ms)"
    if run["latency"]["p99_ms"] > p99_ms:
        return f"P99 {run['latency']['p99_ms']:.3g} ms"
    if run["ok_per_s"] < _ACHIEVED * run["sent_per_s"]:
        return f"answered {run['ok_per_s']:.3g} of {run['sent_per_s']:.3g} a second"
    return ""


class Search:
    """Looks for the knee. trial: runs at a rate and returns the run; None when the search was interrupted.

    runs: every trial, in the order they were made.
    """

    def __init__(self, trial: Callable[[float], Doc | None], p99_ms: float) -> None:
        self._trial, self._p99_ms = trial, p99_ms
        self.runs: list[Doc] = []
        self._tried: list[Doc] = []
        self._held: list[float] = []
        self._high, self._why, self._own = 0.0, "", False

    def find(self, saturation: float) -> dict[str, Any]:
        """Search; returns {rate, at_least, p99_bound_ms, confirmations, saturation_per_s, above, why, tried}.

        saturation: answers a second of a closed loop. rate: None where nothing holds, or nothing was confirmed. above,
        why: the lowest rate that does not hold, and why not; at_least: that is this generator's fault, or no rate was
        tried that does not hold. tried: {rate, why} of every trial in order, why "" where it held.
        """
        self._high, confirmed = saturation * _ABOVE, 0
        while saturation > 0 and confirmed < CONFIRMATIONS and len(self.runs) < _MOST_TRIALS:
            asked, again = self._next()
            if asked < _LEAST * saturation:
                break
            good = self._holds_at(asked)
            if good is None:
                break
            confirmed = confirmed + 1 if again and good else 0
        rate = round(self._low, 3) if confirmed == CONFIRMATIONS else None
        return {
            "rate": rate, "at_least": rate is not None and (self._own or not self._why), "p99_bound_ms": self._p99_ms,
            "confirmations": confirmed, "saturation_per_s": round(saturation, 3),
            "above": round(self._high, 3) if self._why else None, "why": self._why, "tried": self._tried,
        }  # fmt: skip

    @property
    def _low(self) -> float:
        return max(self._held, default=0.0)

    def _next(self) -> tuple[float, bool]:
        """Return the next rate to try, and whether it held before."""
        if self._high - self._low > _NEAR * self._high:
            return float(f"{(self._low + self._high) / 2:.3g}"), False
        if not self._why:  # nothing has failed yet: the closed loop had too few in flight
            self._high *= 2
            return self._next()
        return self._low, True

    def _holds_at(self, rate: float) -> bool | None:
        run = self._trial(rate)
        if run is None:
            return None
        self.runs.append(run)
        wrong = trouble(run, self._p99_ms)
        self._tried.append({"rate": rate, "why": wrong})
        if wrong:
            self._high, self._why, self._own = rate, wrong, wrong.startswith(_OWN_FAULT)
            self._held = [held for held in self._held if held < rate]
        else:
            self._held.append(rate)
        return not wrong
