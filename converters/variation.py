"""Data that hardly varies, told by input and channel: a sensor that was unplugged, a unit that was forgotten.

Near-constant is what an int8 input cannot tell apart. It has 255 steps over a range that holds 0 (TFLite 8-bit
quantization specification, https://ai.google.dev/edge/litert/models/quantization_spec): whatever varies by less than
one step is one number to the model.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from converters.samples import Array, Samples

_STEPS = 255
# Channels that are named; more are counted.
_SHOWN = 8


def notes(samples: Samples) -> Iterator[str]:
    """Yield what is suspicious of each input. A single sample says nothing."""
    if samples.count > 1:
        for name, array in samples.arrays.items():
            yield from _notes(array, f"{samples.source}, input {name!r}")


def _notes(array: Array, where: str) -> Iterator[str]:
    low, high = array.min(), array.max()
    if low == high:
        yield f"{where}: every value is {low}: is this really data?"
        return
    if np.array_equal(array[0], array[1]) and bool((array == array[:1]).all()):
        yield f"{where}: all {len(array)} samples are the same: is this really data?"
    if array.dtype.kind != "f":
        return
    low, high = float(low), float(high)
    step = (max(high, 0.0) - min(low, 0.0)) / _STEPS
    if high - low < step:
        yield f"{where}: varies by {high - low:.3g} only, around {low:.6g}: less than a step of int8; subtract the mean"
    elif array.shape[-1] > 1 and array[0].ndim > 1:
        yield from _channels(array.reshape(-1, array.shape[-1]), step, where)


def _channels(rows: Array, step: float, where: str) -> Iterator[str]:
    """Look at each place of the last axis by itself. rows: [count, channels]."""
    spread = rows.max(axis=0).astype(np.float64) - rows.min(axis=0)
    if constant := np.flatnonzero(spread == 0).tolist():
        values = ", ".join(f"{rows[0, i]:g}" for i in constant[:_SHOWN])
        yield f"{where}: {_listed(constant, len(spread))} constant ({values}): is the sensor connected?"
    if near := np.flatnonzero((spread > 0) & (spread < step)).tolist():
        yield (
            f"{where}: {_listed(near, len(spread))} near-constant: varying by at most {spread[near].max():.3g}, less "
            f"than a step of int8 ({step:.3g}) over the input's whole range; scale the channels alike"
        )


def _listed(channels: list[int], count: int) -> str:
    shown = ", ".join(map(str, channels[:_SHOWN])) + (", …" if len(channels) > _SHOWN else "")
    if len(channels) == 1:
        return f"channel {shown} of {count} is"
    return f"{len(channels)} of {count} channels ({shown}) are"
