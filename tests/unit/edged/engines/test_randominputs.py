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


def halves(found: Any) -> tuple[Any, Any]:
    """Return the even draws and the odd ones."""
    return found[::2], found[1::2]


def test_where_calibration_saw_more_every_second_draw_does_too(dense: Bundle) -> None:
    """Golden samples of 0…1 and 0….6, calibration of -2…3: half of the draws stay, half take all of it."""
    x = np.array([[[0, 0]], [[1, 0.6]]], np.float32)
    samples = Golden({"x": x}, {}, {}, {})
    near, far = halves(drawn(dense, spec("x", (1, 2)), samples, (InputRange("x", -2.0, 3.0),)))
    assert (near.min(axis=0) >= 0).all()
    assert (near.max(axis=0) <= x[1]).all()
    assert (far.min(axis=0) < -1.5).all()
    assert (far.max(axis=0) > 2.5).all()
    assert far.min() >= -2
    assert far.max() <= 3


def test_an_element_of_another_scale_is_widened_in_proportion(dense: Bundle) -> None:
    """Thousandths beside thousands, a constant beside both: half precision would overflow on the other's values."""
    x = np.array([[[0.001, 0, 7]], [[0.002, 5000, 7]]], np.float32)
    samples = Golden({"x": x}, {}, {}, {})
    far = halves(drawn(dense, spec("x", (1, 3)), samples, (InputRange("x", -5000.0, 10_000.0),)))[1]
    assert far[..., 0].min() >= 0
    assert far[..., 0].max() <= 0.003001
    assert (far[..., 0].min() < 0.0005, far[..., 0].max() > 0.0025) == (True, True)
    assert (far[..., 1].min() < -4000, far[..., 1].max() > 9000) == (True, True)
    assert (far[..., 2] == 7).all()


def test_a_calibration_of_less_changes_nothing(dense: Bundle) -> None:
    """Golden samples may come from other data: what they hold was met too."""
    x = np.array([[[-4.0]], [[4.0]]], np.float32)
    found = drawn(dense, spec("x", (1, 1)), Golden({"x": x}, {}, {}, {}), (InputRange("x", -1.0, 1.0),))
    without = drawn(dense, spec("x", (1, 1)), Golden({"x": x}, {}, {}, {}))
    assert (found == without).all()
    other = drawn(dense, spec("x", (1, 1)), Golden({"x": x}, {}, {}, {}), (InputRange("another", -9.0, 9.0),))
    assert (other == without).all()


def test_wider_steps_and_indices_are_whole_numbers_that_the_input_holds(dense: Bundle) -> None:
    """-30…30 at scale .1 is more than int8 holds; tokens up to 99 are all drawn."""
    steps = spec("x", (64,), "int8", scale=0.1, zero_point=3, io="quantized")
    x = np.stack([np.full(64, -50, np.int8), np.full(64, 50, np.int8)])
    far = halves(drawn(dense, steps, Golden({"x": x}, {}, {}, {}), (InputRange("x", -30.0, 30.0),)))[1]
    assert (far.dtype, far.min(), far.max()) == (np.int8, -128, 127)
    tokens = np.stack([np.full(64, 3, np.int64), np.full(64, 40, np.int64)])
    seen = (InputRange("x", 0.0, 99.0),)
    far = halves(drawn(dense, spec("x", (64,), "int64"), Golden({"x": tokens}, {}, {}, {}), seen))[1]
    assert (far.min(), far.max()) == (0, 99)


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
