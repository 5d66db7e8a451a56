"""Random inputs lie within what the model could meet, and are the same on every machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tinymodel
from support.tinymodel import spec

from edged import bundle
from edged.bundle import Bundle, Calibration, Golden, InputRange
from edged.engines.randominputs import RandomInputs


@pytest.fixture
def dense(tmp_path: Path) -> Bundle:
    return bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))


def drawn(loaded: Bundle, of: Any, samples: Golden | None = None, ranges: tuple[InputRange, ...] = ()) -> Any:
    manifest = dataclasses.replace(loaded.manifest, inputs=(of,), calibration=Calibration(ranges=ranges))
    inputs = RandomInputs(dataclasses.replace(loaded, manifest=manifest), samples)
    return np.stack([inputs.draw(number)[0] for number in range(64)])


def test_each_element_stays_within_its_own_golden_values(dense: Bundle) -> None:
    """A column in thousandths and one in thousands: neither leaves its range, both move in it."""
    x = np.array([[[0.001, 5000]], [[0.002, 9000]]], np.float32)
    found = drawn(dense, spec("x", (1, 2)), Golden({"x": x}, {}, {}, {}))
    assert (found.min(axis=0) >= x.min(axis=0)).all()
    assert (found.max(axis=0) <= x.max(axis=0)).all()
    assert (found.std(axis=0) > 0.1 * (x.max(axis=0) - x.min(axis=0))).all()


def test_without_two_samples_calibration_tells(dense: Bundle) -> None:
    """One sample has no range."""
    one = Golden({"x": np.ones((1, 1, 8), np.float32)}, {}, {}, {})
    found = drawn(dense, spec("x", (1, 8)), one, (InputRange("x", -3.0, 5.0),))
    assert -3 <= found.min() < -2.5
    assert 4.5 < found.max() <= 5


def test_calibration_is_turned_into_steps_where_the_client_sends_them(dense: Bundle) -> None:
    """-1…1 at scale .1 and zero point 3 is -7…13."""
    of = spec("x", (64,), "int8", scale=0.1, zero_point=3, io="quantized")
    found = drawn(dense, of, None, (InputRange("x", -1.0, 1.0),))
    assert (found.dtype, found.min(), found.max()) == (np.int8, -7, 13)


@pytest.mark.parametrize(
    ("of", "low", "high"),
    [
        (spec("x", (64,)), -1, 1),
        (spec("x", (64,), "int64"), 0, 1),
        (spec("x", (64,), "bool"), 0, 1),
        (spec("x", (64,), "uint8"), 0, 255),
        (spec("x", (64,), "int8", scale=0.1, zero_point=3), -13.1, 12.4),
        (spec("x", (64,), "int8", scale=0.1, zero_point=3, io="quantized"), -128, 127),
    ],
)
def test_without_data_the_dtype_tells(of: Any, low: float, high: float, dense: Bundle) -> None:
    """No index is out of any table; what is quantized, and bytes, take all that they can hold."""
    found = drawn(dense, of).astype(np.float64)
    assert found.min() >= low - 1e-5
    assert found.max() <= high + 1e-5
    assert found.max() - found.min() > 0.95 * (high - low)


def test_the_same_bundle_gives_the_same_inputs(dense: Bundle) -> None:
    """Each number another input, each input another one than its neighbour's, all of them again the next time."""
    first, second = RandomInputs(dense, dense.golden()), RandomInputs(dense, dense.golden())
    assert (first.draw(3)[0] == second.draw(3)[0]).all()
    assert (first.draw(3)[0] != first.draw(4)[0]).any()
