"""One figure by which all modes that were tried can be held beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from converters import figures
from converters.gates import OutputParity
from converters.report import Attempt


def deciding(attempts: Sequence[Attempt]) -> str:
    """Return the figure to compare by, "" where nothing was measured.

    Most of the modes have it; of several such the one whose limit most modes miss; of those the one that says most. A
    figure that cannot stand alone is taken only where its limit is missed.
    """
    measured = [list(_outputs(attempt)) for attempt in attempts]

    def rank(key: str) -> tuple[int, int, int]:
        having = sum(any(key in p.figures for p in outputs) for outputs in measured)
        missing = sum(any(g.metric == key and not g.passed for p in outputs for g in p.gates) for outputs in measured)
        return having, missing, -candidates.index(key)

    gates = [(g, p) for outputs in measured for p in outputs for g in p.gates]
    failing = {g.metric for g, p in gates if not g.passed and g.metric in p.figures}
    candidates = figures.ordered({*figures.HEADLINES, *failing})
    best = max(candidates, key=rank)
    return best if rank(best)[0] else ""


def worst(attempt: Attempt, key: str) -> tuple[float, str] | None:
    """Return where a figure is worst as a device runs the file, (value, output); None where it was not measured."""
    found = sorted((p.figures[key], p.output) for p in _outputs(attempt) if key in p.figures)
    return found[0 if figures.of(key).higher else -1] if found else None


def _outputs(attempt: Attempt) -> Iterator[OutputParity]:
    for run in attempt.targets:
        if run.delegate != "reference":
            yield from run.outputs
