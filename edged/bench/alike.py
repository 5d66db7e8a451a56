"""Whether two runs asked the same: a ratio of two that did not would be one of the loads, not of the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from edged.bench.document import Doc
from edged.shown import clipped, listed

Tell = Callable[[Doc], object]
# (what it is called, how a run tells it; None where that kind of run has none): must be the same for a ratio.
_MUST: tuple[tuple[str, Tell], ...] = (
    ("model", lambda run: clipped(run["model"])),
    ("payload", lambda run: f"{run['payload_bytes']:,} bytes"),
    ("codec", lambda run: run["codec"]),
    ("QoS", lambda run: run["qos"]),
    ("load", lambda run: run["load"]["kind"]),
    ("rate", lambda run: _each(run, "rate", "/s")),
    ("arrivals", lambda run: run["load"].get("arrivals")),
    ("in flight", lambda run: _each(run, "concurrency")),
    ("interval", lambda run: _each(run, "every_s", " s")),
    ("back to back", lambda run: _each(run, "followers")),
)
# What a reader must know, though the ratios can be told all the same.
_MAY: tuple[tuple[str, Tell], ...] = (
    ("deadline", lambda run: f"{run['deadline_ms']:g} ms"),
    ("length", lambda run: f"{run['seconds']:.0f} s" if run["seconds"] >= 1 else f"{run['seconds']:g} s"),
    (
        "warm-up",
        lambda run: f"{run['warmup_requests']} requests" if run["warmup_requests"] else f"{run['warmup_s']:g} s",
    ),
)


def _each(run: Doc, name: str, unit: str = "") -> str | None:
    value: Any = run["load"].get(name)
    return None if value is None else f"{value:g}{unit}"


def key(run: Doc) -> tuple[object, ...]:
    """Return what two runs must have in common."""
    return tuple(tell(run) for _, tell in _MUST)


def unlike(first: Sequence[Doc], second: Sequence[Doc]) -> list[str]:
    """Return what no run of one side has in common with any of the other, a line each: it forbids a ratio."""
    return list(_apart(_MUST, first, second))


def conditions(first: Sequence[Doc], second: Sequence[Doc]) -> list[str]:
    """Return, in the same way, what else was asked otherwise: it leaves a ratio its sense, with care."""
    return list(_apart(_MAY, first, second))


def _apart(names: Sequence[tuple[str, Tell]], first: Sequence[Doc], second: Sequence[Doc]) -> Iterator[str]:
    for name, tell in names:
        a, b = (
            list(dict.fromkeys(str(told) for run in runs if (told := tell(run)) is not None))
            for runs in (first, second)
        )
        if a and b and not {*a} & {*b}:
            yield f"{name} differs: {listed(a, 5)} in A, {listed(b, 5)} in B"
