"""Constant and near-constant data, told by input and channel."""

from __future__ import annotations

import numpy as np
import pytest

from converters import variation
from converters.samples import Array, Samples

SHAPE = (40, 1, 100, 6)
DATA = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def notes(array: Array, name: str = "x") -> list[str]:
    return list(variation.notes(Samples("c.npz", {name: array})))


def test_data_that_varies_is_left_alone() -> None:
    """Normal noise of one scale in every channel, and a single sample of anything: nothing to say."""
    assert notes(DATA) == []
    assert notes(np.zeros((1, 1, 4), np.float32)) == []


def test_a_constant_input_is_suspicious() -> None:
    """All values equal, floats or whole numbers: told with the value."""
    assert notes(np.full((3, 4), 2.5, np.float32)) == ["c.npz, input 'x': every value is 2.5: is this really data?"]
    assert notes(np.full((3, 4), 7), "ids") == ["c.npz, input 'ids': every value is 7: is this really data?"]


def test_the_same_sample_again_and_again_is_suspicious() -> None:
    """Forty copies of one window are no calibration data; two that differ in one value are not the same."""
    copies = np.repeat(DATA[:1], 40, axis=0)
    assert notes(copies) == ["c.npz, input 'x': all 40 samples are the same: is this really data?"]
    copies[39, 0, 99, 5] += 1
    assert notes(copies) == []


@pytest.mark.parametrize(
    ("channels", "says"),
    [
        ([4], "channel 4 of 6 is constant (0.25): is the sensor connected?"),
        ([0, 2], "2 of 6 channels (0, 2) are constant (0.25, 0.25): is the sensor connected?"),
    ],
)
def test_a_constant_channel_is_named(channels: list[int], says: str) -> None:
    """One of six sensors that always says the same is found by its place on the last axis."""
    data = DATA.copy()
    data[..., channels] = 0.25
    assert notes(data) == [f"c.npz, input 'x': {says}"]


def test_a_channel_in_another_unit_is_near_constant_to_int8() -> None:
    """A channel that varies by less than one of 255 steps of the whole input's range cannot be told from a constant.

    Checked against the quantization itself: all its values land on the same integer, or on two neighbours.
    """
    data = DATA.copy()
    data[..., 3] *= 1e-3
    (note,) = notes(data)
    assert "channel 3 of 6 is near-constant" in note
    step = (data.max() - data.min()) / 255
    assert np.ptp(np.rint(data[..., 3] / step)) <= 1
    data[..., 3] *= 2 * step / np.ptp(data[..., 3])
    assert notes(data) == []


def test_an_input_far_from_zero_is_near_constant_to_int8() -> None:
    """101,325 Pa and a little weather: int8's range holds 0, so a step of it is 397 Pa."""
    pressure = (101_325 + 50 * DATA[..., :1]).astype(np.float32)
    (note,) = notes(pressure)
    assert "around 101" in note
    assert "subtract the mean" in note
    assert notes(pressure - pressure.mean()) == []


def test_many_channels_are_counted_and_some_named() -> None:
    """Of a thousand features that are constant the first eight are named."""
    data = np.zeros((5, 1, 1000), np.float32)
    data[:, 0, 0] = np.arange(5)
    (note,) = notes(data)
    assert "999 of 1000 channels (1, 2, 3, 4, 5, 6, 7, 8, …) are constant" in note
