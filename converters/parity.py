"""How far the converted model is from the SavedModel, output by output.

    max_abs     largest |converted - float|
    relative    max_abs / largest |float|
    cosine      a·b / (|a| |b|) over all samples of the output; 1 where both are zero
    snr_db      10 log10(Σ float² / Σ (converted - float)²), at most 300
    r2          1 - Σ (converted - float)² / Σ (float - mean float)² (real numbers): the cosine sees no lost factor
    r2_part     the worst r2 of a column, channel or step by itself: small numbers may stand beside large ones
    agreement   share of rows whose argmax is the same (class scores)
    class_f1    the worst f1 of a class that the SavedModel finds 5 times or more: rare classes hardly count in a share
    f1          2 TP / (2 TP + FP + FN) of what is at or above the threshold (frames, detections, flags of 0 and 1)
    equal       share of equal values (whole numbers)
    saturated   share of the SavedModel's values beyond what the converted output can hold, by more than a step
and against labels, where they are given: accuracy_float, accuracy (class numbers); mae_float, mae (targets).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from converters import gates, kinds
from converters.gates import OutputParity
from converters.options import Options
from converters.samples import Array
from edged.bundle import TensorSpec
from edged.errors import BadDataError

# What stands for an error of zero, and with a minus for a signal of zero: JSON has no infinity.
MAX_SNR_DB = 300.0
# Of fewer rows of a class, one that flips says little.
_OFTEN = 5
# Axes that are columns, channels or steps of a forecast, and no pixels or samples of sound.
_PARTS = 128
# Answers that deviate by less than this share of the largest are taken for constant: float32 holds no finer.
_STILL = 1e-6


@dataclass(frozen=True)
class Labels:
    """The truth about one output: `classes`, a number for each row, or `targets` of the output's own size."""

    output: str
    classes: Array | None = None
    targets: Array | None = None


def measure(
    floats: Array, converted: Array, threshold: float = 0.5, kind: kinds.Kind | None = None
) -> dict[str, float]:
    """Return the figures of one output; both arrays are [count, *shape], real values.

    kind: what the output holds; without it, what it looks like by itself.
    """
    kind = kind or kinds.alone(floats)
    a, b = floats.astype(np.float64), converted.astype(np.float64)
    if kind == "whole":
        found = {"equal": _mean(floats == converted), "max_abs": _peak(b - a)} | _flags(floats, converted)
        return _rounded(found)
    found = _distances(a, b)
    if kind in ("classes", "perhaps"):
        chosen, other = floats.argmax(-1), converted.argmax(-1)
        found |= {"agreement": _mean(chosen == other)} | _by_class(chosen, other)
    if kind == "frames":
        found |= _hits(floats >= threshold, converted >= threshold)
    if kind in ("real", "perhaps") or (kind == "frames" and "f1" not in found):
        found |= _variance(a, b)
    return _rounded(found)


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.6g}") for name, value in found.items()}


def _distances(a: Array, b: Array) -> dict[str, float]:
    finite = np.isfinite(a)
    a, b = a[finite], b[finite]
    error = b - a
    return {
        "max_abs": _peak(error),
        "relative": _peak(error) / _peak(a) if _peak(a) else _peak(error),
        "cosine": _cosine(a, b),
        "snr_db": snr_db(float(np.square(a).sum()), float(np.square(error).sum())),
    }


def _flags(floats: Array, converted: Array) -> dict[str, float]:
    """Return the F1 of flags: bool, or whole numbers 0 and 1; nothing for other whole numbers."""
    if not np.isin(floats, (0, 1)).all():
        return {}
    return _hits(floats == 1, converted == 1)


def _hits(true: Array, found: Array) -> dict[str, float]:
    """Return F1; where nothing is on in either there is none. What only the converted model finds is all wrong."""
    on = int(np.count_nonzero(true) + np.count_nonzero(found))
    return {"f1": 2 * float(np.count_nonzero(true & found)) / on} if on else {}


def _by_class(chosen: Array, other: Array) -> dict[str, float]:
    numbers, counts = np.unique(chosen, return_counts=True)
    often = numbers[counts >= _OFTEN]
    scores = [_hits(chosen == number, other == number)["f1"] for number in often]
    return {"class_f1": min(scores)} if scores else {}


def _variance(a: Array, b: Array) -> dict[str, float]:
    """Return r2 over all, and the worst of a part along any axis that is no longer than _PARTS."""
    # Infinities would make every sum one; a place is looked at where the SavedModel's answers are all numbers.
    a, b = (np.where(np.isfinite(a), values, 0.0) for values in (a, b))
    least = _STILL * _peak(a)
    whole = _r2(a, b, least)
    if whole is None:
        return {}
    axes = [axis for axis in range(1, a.ndim) if 1 < a.shape[axis] <= _PARTS]
    parts = [
        _r2(part, other, least)
        for axis in axes
        for part, other in zip(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0), strict=True)
    ]
    known = [part for part in parts if part is not None]
    return {"r2": whole, **({"r2_part": min(known)} if known else {})}


def _r2(a: Array, b: Array, least: float) -> float | None:
    """Return the coefficient of determination; None where the answers deviate by no more than `least`."""
    spread = float(np.square(a - a.mean()).sum()) if a.size else 0.0
    if spread <= least**2 * a.size:
        return None
    return 1 - float(np.square(b - a).sum()) / spread


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
    classes: str = "",
    clamped: bool = False,
) -> list[OutputParity]:
    """Measure every output (real values) and set its gates; raises BadDataError for an answer that is not finite.

    real_data, clamped: see gates.of. classes: the output that a person says holds class scores, "" for none.
    """
    made, held = [], _kinds(floats, labels, classes)
    for name in sorted(floats):
        _check_finite(name, floats[name], converted[name])
        figures = measure(floats[name], converted[name], options.threshold, held[name])
        if labels is not None and labels.output == name:
            figures |= _against(labels, floats[name], converted[name])
        sure = held[name] != "perhaps"
        bounds = gates.of(name, figures, options, real_data=real_data, clamped=clamped, sure=sure)
        made.append(OutputParity(name, figures, bounds))
    return made


def _kinds(floats: Mapping[str, Array], labels: Labels | None, classes: str) -> dict[str, kinds.Kind]:
    if labels is None:
        return kinds.of(floats, classes)
    if labels.classes is not None:
        return kinds.of(floats, labels.output)
    return kinds.of(floats, classes, labels.output)


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
