"""How far the converted model is from the SavedModel, output by output.

    max_abs     largest |converted - float|
    relative    max_abs / largest |float|
    cosine      a·b / (|a| |b|) over all samples of the output; 1 where both are zero
    snr_db      10 log10(Σ float² / Σ (converted - float)²), at most 300
    agreement   share of rows whose argmax is the same (class scores)
    f1          2 TP / (2 TP + FP + FN) of what is at or above the threshold (frames, detections, several labels)
    equal       share of equal values (whole numbers)
    saturated   share of the SavedModel's values beyond what the converted output can hold, by more than a step
and against labels, where they are given: accuracy_float, accuracy (class numbers); mae_float, mae (targets).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from converters import gates
from converters.gates import OutputParity
from converters.options import Options
from converters.samples import Array
from edged.bundle import TensorSpec
from edged.errors import BadDataError

_CLASSES = range(2, 10_001)
# What stands for an error of zero, and with a minus for a signal of zero: JSON has no infinity.
MAX_SNR_DB = 300.0
# Softmax in float16 or float32 adds up to 1 within this.
_SUM = 1e-2


@dataclass(frozen=True)
class Labels:
    """The truth about one output: `classes`, a number for each row, or `targets` of the output's own size."""

    output: str
    classes: Array | None = None
    targets: Array | None = None


def is_classifier(floats: Array) -> bool:
    """Whether [count, *shape] answers look like class scores: softmax rows, or [batch, classes] that are no frames."""
    if floats.dtype.kind != "f" or floats.ndim < 3 or floats.shape[-1] not in _CLASSES:  # noqa: PLR2004  # count + rank 2
        return False
    if _unit(floats):
        return _sums_to_one(floats)
    return floats.ndim == 3  # noqa: PLR2004  # as above


def is_frames(floats: Array) -> bool:
    """Whether the answers look like scores each of its own: float, all in 0 to 1, rows that do not add up to 1."""
    return floats.dtype.kind == "f" and floats.ndim > 1 and _unit(floats) and not is_classifier(floats)


def _unit(floats: Array) -> bool:
    return bool(floats.size) and bool(floats.min() >= 0) and bool(floats.max() <= 1)


def _sums_to_one(floats: Array) -> bool:
    return bool(np.allclose(floats.sum(-1, dtype=np.float64), 1.0, atol=_SUM))


def measure(floats: Array, converted: Array, threshold: float = 0.5) -> dict[str, float]:
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
        "snr_db": snr_db(float(np.square(a).sum()), float(np.square(error).sum())),
    }
    if is_classifier(floats):
        found["agreement"] = _mean(floats.argmax(-1) == converted.argmax(-1))
    elif is_frames(floats) and bool((floats >= threshold).any()):
        found["f1"] = _f1(floats >= threshold, converted >= threshold)
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


def snr_db(signal: float, noise: float) -> float:
    """Return the ratio of two sums of squares in dB, of a signal and of the error in it: at most ±MAX_SNR_DB."""
    if noise == 0.0:
        return MAX_SNR_DB
    ratio = signal / noise
    return float(np.clip(10 * np.log10(ratio), -MAX_SNR_DB, MAX_SNR_DB)) if ratio else -MAX_SNR_DB


def _f1(true: Array, found: Array) -> float:
    both = float(np.count_nonzero(true & found))
    return 2 * both / float(np.count_nonzero(true) + np.count_nonzero(found))


def saturated(floats: Array, spec: TensorSpec) -> float:
    """Return the share of float values [count, *shape] that lie beyond the output's integer range, by more than a step.

    0 for an output that is not quantized.
    """
    if not spec.scale or not floats.size:
        return 0.0
    limits = np.iinfo(spec.dtype)
    low, high = ((limit - spec.zero_point) * spec.scale for limit in (limits.min - 1, limits.max + 1))
    return float(((floats < low) | (floats > high)).mean())


def accuracy(scores: Array, labels: Array) -> float:
    """Return the share of rows whose argmax is the label; scores [count, batch, classes], labels whole numbers."""
    return float((scores.argmax(-1).reshape(-1) == labels.reshape(-1)).mean())


def mean_absolute_error(answers: Array, targets: Array) -> float:
    """Return the mean of |answer - target|; both hold the same number of values, in the same order."""
    return float(np.abs(answers.astype(np.float64).reshape(-1) - targets.astype(np.float64).reshape(-1)).mean())


def compare(
    floats: Mapping[str, Array],
    converted: Mapping[str, Array],
    options: Options,
    *,
    real_data: bool,
    labels: Labels | None = None,
    clamped: bool = False,
) -> list[OutputParity]:
    """Measure every output (real values) and set its gates; raises BadDataError for an answer that is not finite.

    real_data, clamped: see gates.of.
    """
    made = []
    for name in sorted(floats):
        _check_finite(name, floats[name], converted[name])
        figures = measure(floats[name], converted[name], options.threshold)
        if labels is not None and labels.output == name:
            figures |= _against(labels, floats[name], converted[name])
        bounds = gates.of(name, figures, options, real_data=real_data, clamped=clamped)
        made.append(OutputParity(name, figures, bounds))
    return made


def _check_finite(name: str, floats: Array, converted: Array) -> None:
    if floats.dtype.kind != "f":
        return
    good = np.isfinite(converted) | ~np.isfinite(floats)
    if not good.all():
        sample = int(np.argmin(good.reshape(len(good), -1).all(axis=1)))
        what = f"the converted model answers NaN or Inf for sample {sample}, the SavedModel does not"
        raise BadDataError(f"output {name!r}", what)


def _against(labels: Labels, floats: Array, converted: Array) -> dict[str, float]:
    if labels.classes is not None:
        return {
            "accuracy_float": accuracy(floats, labels.classes),
            "accuracy": accuracy(converted, labels.classes),
        }
    if labels.targets is not None:
        return {
            "mae_float": mean_absolute_error(floats, labels.targets),
            "mae": mean_absolute_error(converted, labels.targets),
        }
    return {}


def constant_outputs(floats: Mapping[str, Array], converted: Mapping[str, Array]) -> list[str]:
    """Return the outputs that are the same for every sample though the SavedModel's are not."""
    return [name for name in sorted(floats) if _varies(floats[name]) and not _varies(converted[name])]


def _varies(answers: Array) -> bool:
    return bool((answers != answers[0]).any())
