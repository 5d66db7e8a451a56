"""Which outputs are worst, where, and what fails: the order in which the report page tells of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from converters.gates import Gate, OutputParity
from converters.report import Attempt, TargetRun, slack
from converters.reportpage_words import where

# Where several limits of one file are missed, they are told in one sentence, each beginning like this.
_NEXT = re.compile(r"; (?=output ['\"])")


@dataclass(frozen=True)
class Worst:
    """A figure of one output where it is worst of all targets. place: that target."""

    place: str
    gate: Gate
    parity: OutputParity


def proofs(attempt: Attempt) -> Iterator[tuple[TargetRun, OutputParity]]:
    """Yield every output on every target it was measured on."""
    for run in attempt.targets:
        for parity in run.outputs:
            yield run, parity


def worst(attempt: Attempt) -> list[list[Worst]]:
    """Return for every output its gates, each where it is worst; the worst output and its worst gate come first."""
    found: dict[str, dict[str, Worst]] = {}
    for run, parity in proofs(attempt):
        kept = found.setdefault(parity.output, {})
        for gate in parity.gates:
            if gate.metric not in kept or slack(gate) < slack(kept[gate.metric].gate):
                kept[gate.metric] = Worst(where(run), gate, parity)
    groups = [sorted(group.values(), key=_rank) for group in found.values() if group]
    return sorted(groups, key=lambda group: _rank(group[0]))


def _rank(item: Worst) -> tuple[bool, float]:
    return item.gate.passed, slack(item.gate)


def missed(groups: Sequence[Sequence[Worst]]) -> list[Worst]:
    """Return what fails of what `worst` found, the worst first."""
    return sorted((item for group in groups for item in group if not item.gate.passed), key=_rank)


def parts(reason: str) -> list[str]:
    """Return the sentences of a reason, one for each limit that is missed."""
    return _NEXT.split(reason)


def others(attempt: Attempt) -> list[str]:
    """Return the reasons that are no missed limit of an output."""
    told = {f"{start}{gate}" for run, parity in proofs(attempt) for gate in parity.gates
            for start in ("", f"{run.runtime}: ")}  # fmt: skip
    return [part for reason in attempt.reasons for part in parts(reason) if part not in told]
