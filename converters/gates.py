"""The bounds an output's figures must keep, and what is said when they do not.

Every output is gated: a headline metric of one output hides the damage in another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from converters.options import Options
from edged.bundle import Quality

# An accuracy lost, or an error grown, by exactly the limit is not beyond it, whatever floats make of the difference.
_SLACK = 1e-9
# A class of which a fifth is lost or mistaken, and a column of which half is noise, are of no use by themselves.
_CLASS = 0.8
_PART = 0.5
_UNSURE = "if these are no class scores: --min-agreement 0, or --postprocess names the output that has them"


@dataclass(frozen=True)
class Gate:
    """A figure and its bound. `at_least` tells which side is good. note: what to think of where it fails, in words."""

    output: str
    metric: str
    value: float
    threshold: float
    at_least: bool = True
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the figure keeps its bound; NaN never does."""
        return self.value >= self.threshold if self.at_least else self.value <= self.threshold

    @property
    def margin(self) -> float:
        """How far on the good side, as a share of the room there is; negative where the gate fails."""
        room = 1 - self.threshold if self.at_least else self.threshold
        distance = self.value - self.threshold if self.at_least else self.threshold - self.value
        return distance / (room or 1.0)

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        note = f" ({self.note})" if self.note else ""
        return f"output {self.output!r}: {self.metric} is {self.value:.4g}, {sign} {self.threshold:.6g} is asked{note}"


@dataclass(frozen=True)
class OutputParity:
    """One output's figures and gates. The first gate is the one the manifest tells first."""

    output: str
    figures: Mapping[str, float]
    gates: tuple[Gate, ...]

    def quality(self, samples: int) -> Quality:
        """Return the manifest's record."""
        first = self.gates[0]
        return Quality(self.output, first.metric, first.value, first.threshold, samples, self.figures)


def of(
    output: str,
    figures: Mapping[str, float],
    options: Options,
    *,
    real_data: bool,
    clamped: bool = False,
    sure: bool = True,
) -> tuple[Gate, ...]:
    """Return an output's gates.

    sure: whether what has an agreement is known to be class scores. real_data: on random inputs scores fall between
    the classes: how often they flip says little. clamped: the file holds constants that float16 cut off, so that every
    output must keep its size: a factor that became smaller leaves the cosine as it was.
    """
    found = _gates(output, figures, options, real_data=real_data, note="" if sure else _UNSURE)
    if clamped and "relative" in figures:
        found = itertools.chain(found, [_size(output, figures, options)])
    return tuple(found)


def _size(output: str, figures: Mapping[str, float], options: Options) -> Gate:
    return Gate(output, "relative", figures["relative"], options.mode.relative, at_least=False)


def _gates(
    output: str, figures: Mapping[str, float], options: Options, *, real_data: bool, note: str
) -> Iterator[Gate]:
    yield from _scores(output, figures, options, real_data=real_data, note=note)
    yield from _against_labels(output, figures, options)
    bounds = {"r2": options.mode.r2, "r2_part": _PART, "cosine": options.mode.cosine, "equal": options.mode.equal}
    yield from (Gate(output, metric, figures[metric], bound) for metric, bound in bounds.items() if metric in figures)
    if options.max_error is not None:
        yield Gate(output, "max_abs", figures["max_abs"], options.max_error, at_least=False)


def _scores(
    output: str, figures: Mapping[str, float], options: Options, *, real_data: bool, note: str
) -> Iterator[Gate]:
    """Yield how often both models decide alike; what a person asked for with --min-agreement replaces all of it."""
    agreement = options.min_agreement
    if agreement is None and real_data:
        agreement = options.mode.agreement
    bounds = {"agreement": agreement, "class_f1": None if agreement is None else _CLASS, "f1": agreement}
    if options.min_agreement is not None:
        del bounds["class_f1"]
    for metric, bound in bounds.items():
        if metric in figures and bound is not None:
            yield Gate(output, metric, figures[metric], bound, note=note)


def _against_labels(output: str, figures: Mapping[str, float], options: Options) -> Iterator[Gate]:
    if "accuracy" in figures:
        least = figures["accuracy_float"] - options.max_accuracy_loss - _SLACK
        yield Gate(output, "accuracy", figures["accuracy"], max(0.0, least), note="--max-accuracy-loss")
    if "mae" in figures:
        most = figures["mae_float"] * (1 + options.max_mae_growth) + _SLACK
        yield Gate(output, "mae", figures["mae"], most, at_least=False, note="--max-mae-growth")


def failures(parities: Sequence[OutputParity], stuck: Sequence[str], clamped: Sequence[str] = ()) -> list[str]:
    """Return every gate that fails, its value and its threshold.

    stuck: outputs that never change. clamped: constants that float16 cut off: where anything fails, they may be why.
    """
    failed = [str(gate) for parity in parities for gate in parity.gates if not gate.passed]
    failed += [f"output {name!r}: the same answer for every sample" for name in stuck]
    if failed and clamped:
        names = ", ".join(map(repr, clamped))
        failed.append(f"float16 cannot hold the values of {names} (beyond 65504): use --quantize none or dynamic")
    return failed
