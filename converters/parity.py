"""How far the converted model is from the SavedModel, output by output, and the gates it must pass.

Every output is gated: a headline metric of one output hides the damage in another.
    max_abs     largest |converted - float|
    relative    max_abs / largest |float|
    cosine      a·b / (|a| |b|) over all samples of the output; 1 where both are zero
    snr_db      10 log10(Σ float² / Σ (converted - float)²), at most 300
    agreement   share of rows whose argmax is the same (classifiers: float, rank 2, last axis 2 to 10,000)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from converters.options import Options
from converters.samples import Array
from edged.bundle import Quality
from edged.errors import BadDataError

_CLASSES = range(2, 10_001)
_MAX_SNR = 300.0


@dataclass(frozen=True)
class Gate:
    """A figure and its bound. `at_least` tells which side is good."""

    output: str
    metric: str
    value: float
    threshold: float
    at_least: bool = True

    @property
    def passed(self) -> bool:
        """Whether the figure keeps its bound; NaN never does."""
        return self.value >= self.threshold if self.at_least else self.value <= self.threshold

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        return f"output {self.output!r}: {self.metric} is {self.value:.4g}, {sign} {self.threshold:.4g} is asked"


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


def is_classifier(floats: Array) -> bool:
    """Whether [count, *shape] answers look like class scores."""
    return floats.dtype.kind == "f" and floats.ndim == 3 and floats.shape[-1] in _CLASSES  # noqa: PLR2004  # count + rank 2


def measure(floats: Array, converted: Array) -> dict[str, float]:
    """Return the figures of one output; both arrays are [count, *shape], real values."""
    a, b = floats.astype(np.float64), converted.astype(np.float64)
    if floats.dtype.kind != "f":
        return {"equal": _mean(floats == converted), "max_abs": _peak(b - a)}
    finite = np.isfinite(a)
    a, b = a[finite], b[finite]
    error = b - a
    found = {
        "max_abs": _peak(error),
        "relative": _peak(error) / _peak(a) if _peak(a) else _peak(error),
        "cosine": _cosine(a, b),
        "snr_db": _snr(a, error),
    }
    if is_classifier(floats):
        found["agreement"] = _mean(floats.argmax(-1) == converted.argmax(-1))
    return {name: float(f"{value:.6g}") for name, value in found.items()}


def _peak(values: Array) -> float:
    return float(np.abs(values).max()) if values.size else 0.0


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else 1.0


def _cosine(a: Array, b: Array) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    if norms == 0.0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return float(np.dot(a, b)) / norms


def _snr(a: Array, error: Array) -> float:
    signal, noise = float(np.square(a).sum()), float(np.square(error).sum())
    if noise == 0.0:
        return _MAX_SNR
    return min(_MAX_SNR, 10 * float(np.log10(signal / noise))) if signal else -_MAX_SNR


def accuracy(scores: Array, labels: Array) -> float:
    """Return the share of rows whose argmax is the label; scores [count, batch, classes], labels whole numbers."""
    return float((scores.argmax(-1).reshape(-1) == labels.reshape(-1)).mean())


def compare(
    floats: Mapping[str, Array], converted: Mapping[str, Array], options: Options, *, real_data: bool
) -> list[OutputParity]:
    """Measure every output (real values) and set its gates; raises BadDataError for an answer that is not finite."""
    return [_output(name, floats[name], converted[name], options, real_data) for name in sorted(floats)]


def _output(name: str, floats: Array, converted: Array, options: Options, real_data: bool) -> OutputParity:
    if floats.dtype.kind == "f":
        good = np.isfinite(converted) | ~np.isfinite(floats)
        if not good.all():
            sample = int(np.argmin(good.reshape(len(good), -1).all(axis=1)))
            raise BadDataError(
                f"output {name!r}",
                f"the converted model answers NaN or Inf for sample {sample}, the SavedModel does not",
            )
    figures = measure(floats, converted)
    return OutputParity(name, figures, tuple(_gates(name, figures, options, real_data)))


def _gates(name: str, figures: Mapping[str, float], options: Options, real_data: bool) -> Iterator[Gate]:
    agreement = options.min_agreement
    # Random inputs fall between the classes; how often they flip says little.
    if agreement is None and real_data:
        agreement = options.mode.agreement
    if "agreement" in figures and agreement is not None:
        yield Gate(name, "agreement", figures["agreement"], agreement)
    if "cosine" in figures:
        yield Gate(name, "cosine", figures["cosine"], options.mode.cosine)
    else:
        yield Gate(name, "equal", figures["equal"], options.mode.agreement or 1.0)
    if options.max_error is not None:
        yield Gate(name, "max_abs", figures["max_abs"], options.max_error, at_least=False)


def constant_outputs(floats: Mapping[str, Array], converted: Mapping[str, Array]) -> list[str]:
    """Return the outputs that are the same for every sample though the SavedModel's are not."""
    return [name for name in sorted(floats) if _varies(floats[name]) and not _varies(converted[name])]


def _varies(answers: Array) -> bool:
    return bool((answers != answers[0]).any())


def enforce(parities: Sequence[OutputParity], stuck: Sequence[str], options: Options) -> None:
    """Raise BadDataError naming every gate that fails, its value and its threshold."""
    failed = [str(gate) for parity in parities for gate in parity.gates if not gate.passed]
    failed += [f"output {name!r}: the same answer for every sample" for name in stuck]
    if failed:
        hint = "is --calibration what the model will see, scaled as for training?" if options.calibration else ""
        raise BadDataError(f"--quantize {options.quantize}", "; ".join(failed), hint)
