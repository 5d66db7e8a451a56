"""Figures and sizes as the report page writes them; the terminal takes the words that are the same there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from converters import figures
from converters.gates import Gate
from converters.report import TargetRun
from edged.engines.tflite_coverage import NOT_TOLD, Coverage

# The typographer's signs, by number: they look like others.
NONE, TIMES = "\u2013", "\u00d7"
_ALONE = "own kernels alone"
# Enough for a person; more only where a figure misses its bound by less.
_DIGITS = (4, 6, 9, 12)


def metric(key: str) -> str:
    """Return a figure's name in words."""
    return figures.of(key).words


def number(value: float) -> str:
    """Return a figure with 4 digits."""
    return f"{value:.4g}"


def apart(gate: Gate) -> tuple[str, str]:
    """Return a gate's figure and bound; where it fails with as many digits as it takes to see that it does."""
    pairs = [(f"{gate.value:.{digits}g}", f"{gate.threshold:.{digits}g}") for digits in _DIGITS]
    return pairs[0] if gate.passed else next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def percent(share: float) -> str:
    """Return a share in percent; one that is less than all never reads 100 %."""
    if not math.isfinite(share):
        return str(share)
    shown = f"{100 * share:.3g}" if share < 1 else f"{100 * share:,.0f}"
    if share < 1 and float(shown) >= 100:  # noqa: PLR2004  # percent
        return "> 99.9 %"
    return "< 0.01 %" if 0 < share < 1e-4 else f"{shown} %"  # noqa: PLR2004


def time(us: float) -> str:
    """Return a duration given in µs; "" for 0, which is not measured."""
    if not us:
        return ""
    return f"{us:.3g} µs" if us < 1000 else f"{us / 1000:.3g} ms"  # noqa: PLR2004


def count(amount: int, one: str, many: str = "") -> str:
    """Return `1 op`, `2 ops`."""
    return f"{amount:,} {one if amount == 1 else many or one + 's'}"


def bound(gate: Gate) -> str:
    """Return a gate in words: `cosine similarity 0.59, must be ≥ 0.95`."""
    value, threshold = apart(gate)
    return f"{metric(gate.metric)} {value}, must be {'≥' if gate.at_least else '≤'} {threshold}"


def judged(gate: Gate) -> str:
    """Return `bound`, and where it is missed what the gate has to say of that."""
    return bound(gate) if gate.passed or not gate.note else f"{bound(gate)} ({gate.note})"


def takes(row: Coverage) -> str:
    """Return what a delegate takes: `12 of 15 ops`, `at most 12 of 15 ops` where no more is known than a bound.

    "" where nothing is known: the row's reason says why.
    """
    if not row.total or row.reason.startswith(NOT_TOLD):
        return ""
    return f"{row.bound} {row.taken:,} of {count(row.total, 'op')}".lstrip()


def unproven(targets: Sequence[TargetRun]) -> list[str]:
    """Return the runtimes that the model never ran on: what is said of them is what a table says."""
    return sorted({run.runtime for run in targets if run.state == "not run"})


def where(run: TargetRun) -> str:
    """Return a target: `ai-edge-litert 2.3.0`; as a device runs it unless it says something else."""
    return f"{run.runtime}, {_ALONE}" if run.delegate == "reference" else run.runtime


def listed(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
