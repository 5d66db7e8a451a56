"""The choice: the fastest candidate that agrees with the CPU reference, and why each other one lost.

Pure: what was measured goes in, verdicts come out. Whatever a candidate takes of the model, it competes by time: a
partial mapping that is quicker than the whole one wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

# agrees: it could serve, and no choice was made yet. unavailable: its probe found no library or device. failed: it did
# not open, or an inference failed, hung or crashed. refused: it opened, and its answers are wrong, or it takes nothing
# of the model. suspect: an earlier start ended while it was being opened, or it crashed or hung then. unmeasured: time
# was up.
# stand-in: it agrees, was not asked for, and serves when what was asked for cannot.
Verdict = Literal[
    "agrees", "chosen", "slower", "stand-in", "refused", "failed", "unavailable", "suspect", "unmeasured"
]  # fmt: skip

# Two P50 within this share of the smaller are the same: runs of one candidate on a quiet machine differ as much.
TIE = 0.05


@dataclass(frozen=True)
class Measured:
    """One candidate and what was found. label, runtime, delegate, threads, options (JSON): which. reason: why it lost.

    mapping, nodes_taken, nodes_total: see EngineInfo. worst: the largest error as a share of its tolerance (above 1 is
    refused), worst_what: of which sample and output. checked: how many golden samples were run, all where there was
    time. p50_us, p99_us: one inference as it would be served, after warm-up, over `samples` of them. open_ms: load and
    compilation; first_ms: the first inference. rss_bytes: of the process that serves. crashed: code of the candidate
    ended its process; hung: it was not done in time. kept: found on disk, not measured now.
    """

    label: str
    runtime: str
    delegate: str
    threads: int
    options: str = "{}"
    verdict: Verdict = "unmeasured"
    reason: str = ""
    mapping: str = "unknown"
    nodes_taken: int | None = None
    nodes_total: int | None = None
    worst: float | None = None
    worst_what: str = ""
    checked: int = 0
    p50_us: float | None = None
    p99_us: float | None = None
    samples: int = 0
    open_ms: float | None = None
    first_ms: float | None = None
    rss_bytes: int | None = None
    crashed: bool = False
    hung: bool = False
    kept: bool = False


@dataclass(frozen=True)
class Entry:
    """A row with what the choice must know beside it. cpu: it is the CPU, in this process. asked: it may be chosen."""

    row: Measured
    cpu: bool
    asked: bool = True


@dataclass(frozen=True)
class Choice:
    """rows: in the order given, each with its last verdict. chosen, stand_in: places in it, None for none.

    stand_in: the best candidate of the CPU, the one chosen included.
    """

    rows: tuple[Measured, ...]
    chosen: int | None
    stand_in: int | None


def choose(entries: Sequence[Entry]) -> Choice:
    """Choose among those that agree: first of what was asked for, and only if none of it can, of the rest.

    The fastest P50 wins. Within `TIE` of it: fewer threads, then the CPU, which needs no process of its own, then the
    order given.
    """
    fit = [place for place, entry in enumerate(entries) if entry.row.verdict == "agrees"]
    asked = [place for place in fit if entries[place].asked]
    chosen = _best(entries, asked or fit)
    stand_in = _best(entries, [place for place in fit if entries[place].cpu])
    rows = tuple(_judged(entry, place, entries, chosen) for place, entry in enumerate(entries))
    return Choice(rows, chosen, stand_in)


def _best(entries: Sequence[Entry], places: Sequence[int]) -> int | None:
    if not places:
        return None
    limit = min(_p50(entries[place].row) for place in places) * (1 + TIE)
    near = [place for place in places if _p50(entries[place].row) <= limit]
    return min(near, key=lambda place: (entries[place].row.threads, not entries[place].cpu, place))


def _judged(entry: Entry, place: int, entries: Sequence[Entry], chosen: int | None) -> Measured:
    row = entry.row
    if row.verdict != "agrees" or chosen is None:
        return row
    if place == chosen:
        return replace(row, verdict="chosen")
    if entries[chosen].asked and not entry.asked:
        return replace(row, verdict="stand-in", reason="was not asked for; serves when what was asked for cannot")
    return replace(row, verdict="slower", reason=_why(entry, entries[chosen]))


def _why(entry: Entry, chosen: Entry) -> str:
    mine, its = _p50(entry.row), _p50(chosen.row)
    against = f"P50 {mine:.1f} µs against {its:.1f} µs"
    return against if mine > its * (1 + TIE) else f"{against}, within {TIE:.0%}: {_preference(entry, chosen)}"


def _preference(entry: Entry, chosen: Entry) -> str:
    if entry.row.threads != chosen.row.threads:
        return "fewer threads go first"
    return "the CPU goes first" if chosen.cpu and not entry.cpu else "the order given decides"


def _p50(row: Measured) -> float:
    return float("inf") if row.p50_us is None else row.p50_us
