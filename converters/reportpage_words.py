"""Figures and sizes as the report page writes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from converters.gates import Gate, OutputParity
from converters.report import Attempt, TargetRun

# The typographer's signs, by number: they look like others.
NONE, TIMES = "\u2013", "\u00d7"
_METRICS = {
    "agreement": "argmax agreement",
    "equal": "equal answers",
    "cosine": "cosine similarity",
    "snr_db": "signal to noise (dB)",
    "max_abs": "largest error",
    "relative": "largest error / largest value",
    "f1": "F1",
    "saturated": "share beyond the range",
    "accuracy": "accuracy",
    "accuracy_float": "accuracy of the SavedModel",
    "mae": "mean absolute error",
    "mae_float": "mean absolute error of the SavedModel",
}
# Enough for a person; more only where a figure misses its bound by less.
_DIGITS = (4, 6, 9, 12)


def metric(key: str) -> str:
    """Return a figure's name in words; one that is not known is shown as it is called."""
    return _METRICS.get(key, key.replace("_", " "))


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


def size(count: int) -> str:
    """Return a number of bytes: `812 B`, `64.0 KiB`, `16.0 MiB`."""
    if count < 1024:  # noqa: PLR2004
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"


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


def where(run: TargetRun) -> str:
    """Return a target: `ai-edge-litert 2.3.0 · xnnpack`."""
    return f"{run.runtime} · {run.delegate}" if run.delegate else run.runtime


def proofs(attempt: Attempt) -> Iterator[tuple[TargetRun, OutputParity]]:
    """Yield every output on every target it was measured on."""
    for run in attempt.targets:
        for parity in run.outputs:
            yield run, parity


def slack(gate: Gate) -> float:
    """Return how far a gate is from failing, negative where it fails; what is no number is the worst there is."""
    return gate.margin if math.isfinite(gate.value) else -math.inf


@dataclass(frozen=True)
class Worst:
    """A figure of one output where it is worst of all targets. place: that target."""

    place: str
    gate: Gate
    parity: OutputParity


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
