"""How samples are shared between calibration and comparison, and what a person should know of them before."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator

import numpy as np

from converters.samples import InputInfo, Samples
from edged.errors import BadDataError

# Below this, ranges of activations are a guess; the TFLite guide asks for "100-500 samples".
FEW = 100
# Of fewer, one answer that flips moves every share by more than the gates allow.
FEW_COMPARED = 20
# Every fifth calibration sample is held out where there is no evaluation data.
HOLD_OUT = 5
MOST_HELD_OUT = 200
RANDOM = "random"
RANDOM_SAMPLES = 32
# Numbers are drawn as float64.
_DRAWN_BYTES = 8


def check(calibration: Samples | None, *, calibrated: bool) -> None:
    """Raise BadDataError for calibration data without two different samples: no range can be learnt of it."""
    if calibration is None or not calibrated or len(set(_digests(calibration))) > 1:
        return
    what = "holds a single sample" if calibration.count == 1 else f"all {calibration.count} samples are the same"
    raise BadDataError(calibration.source, f"{what}: nothing to calibrate with", f"{FEW} or more real samples")


def warnings(calibration: Samples | None, evaluation: Samples, *, calibrated: bool) -> list[str]:
    """Return what makes calibration a guess, or the comparison too kind.

    calibrated: whether the mode uses the calibration data (int8, int16x8, mixed, auto).
    """
    if calibration is None or not calibrated:
        return []
    seen, compared = _digests(calibration), _digests(evaluation)
    return [*_few(calibration, len(set(seen))), *_shared(evaluation, set(seen), compared)]


def compared(evaluation: Samples) -> list[str]:
    """Return what makes the comparison a guess: too few samples in it."""
    if evaluation.count >= FEW_COMPARED:
        return []
    return [f"compared on only {evaluation.count} samples of {evaluation.source}: give more with --eval"]


def _few(samples: Samples, different: int) -> Iterator[str]:
    if different < min(samples.count, FEW):
        yield f"{samples.source}: only {different} of {samples.count} samples are different"
    elif samples.count < FEW:
        yield f"{samples.source}: only {samples.count} samples; {FEW} or more calibrate well"


def _shared(evaluation: Samples, seen: set[bytes], compared: list[bytes]) -> Iterator[str]:
    both = sum(digest in seen for digest in compared)
    if both == len(compared):
        yield f"{evaluation.source}: every sample of it calibrated too: the quality is measured on the calibration data"
    elif both:
        yield f"{evaluation.source}: {both} of the {len(compared)} samples that are compared calibrated too"


def _digests(samples: Samples) -> list[bytes]:
    """Return a hash of each sample, over all inputs: memory stays that of the hashes."""
    hashes = [hashlib.blake2b(digest_size=16) for _ in range(samples.count)]
    for name in sorted(samples.arrays):
        for digest, one in zip(hashes, samples.arrays[name], strict=True):
            # 0.0 and -0.0 are the same number in other bytes.
            digest.update(np.ascontiguousarray(one + 0.0 if one.dtype.kind == "f" else one).tobytes())
    return [digest.digest() for digest in hashes]


def hold_out(samples: Samples) -> tuple[Samples, Samples]:
    """Split into (calibration, held out): every fifth is held out; too few for that serve both."""
    index = np.arange(samples.count)
    held = index[HOLD_OUT - 1 :: HOLD_OUT][:MOST_HELD_OUT]
    if held.size <= 1:
        return samples, samples
    return samples.take(np.setdiff1d(index, held)), samples.take(held)


def random_samples(inputs: tuple[InputInfo, ...], count: int = RANDOM_SAMPLES) -> Samples:
    """Make seeded samples where none were given: normal floats, pixels, whole numbers 0 and 1 (any table has them).

    Raises BadDataError where there is no memory for them.
    """
    try:
        return _drawn(inputs, count)
    except MemoryError as exc:
        size = count * _DRAWN_BYTES * max(math.prod(info.shape) for info in inputs)
        what = f"no memory for {count} samples, {size:,} bytes"
        raise BadDataError(
            "random inputs", what, "give a few samples: --eval; or a smaller --batch or --shape"
        ) from exc


def _drawn(inputs: tuple[InputInfo, ...], count: int) -> Samples:
    generator = np.random.default_rng(0)
    arrays = {}
    for info in inputs:
        shape, dtype = (count, *info.shape), np.dtype(info.dtype)
        if info.is_float:
            arrays[info.name] = generator.standard_normal(shape, dtype=np.float64).astype(dtype)
        else:
            high = 256 if dtype == np.uint8 else 2
            arrays[info.name] = generator.integers(0, high, shape).astype(dtype)
    return Samples(RANDOM, arrays, random=True)
