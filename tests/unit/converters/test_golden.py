"""Golden samples: client dtypes, and tolerances that let honest kernels pass and rubbish fail."""

from __future__ import annotations

import numpy as np
import pytest

from converters import golden
from converters.loadtest import Outcome
from converters.options import MODES
from edged.bundle import TensorSpec
from edged.engines.golden import largest_error

INT8 = TensorSpec("y", "int8", (1, 2), scale=0.5, zero_point=3)
RAW8 = TensorSpec("y", "int8", (1, 2), scale=0.5, zero_point=3, io="quantized")
FLOAT = TensorSpec("y", "float32", (1, 2))


def outcome(name: str, reference: np.ndarray[tuple[int, ...], np.dtype[np.generic]], shift: int = 0) -> Outcome:
    return Outcome(name, "", {"y": reference}, {"y": reference + np.array(shift, reference.dtype)})


def test_the_largest_error_is_one_function_for_converter_and_daemon() -> None:
    """What the tolerance is made of is measured as the daemon measures: int8 without overflow, NaN told, empty is 0."""
    low, high = np.array([-128, 3], np.int8), np.array([127, 3], np.int8)
    assert largest_error(low, high) == 255.0
    assert np.isnan(largest_error(np.array([np.nan, 1.0]), np.array([0.0, 1.0])))
    assert largest_error(np.zeros((0, 2)), np.zeros((0, 2))) == 0.0
    assert golden._worst(low, high) == 255.0


def test_picked_samples_are_spread() -> None:
    """First to last, no more than there are; in order from the first for a model with state."""
    assert golden.pick(100, 5, in_order=False).tolist() == [0, 25, 50, 74, 99]
    assert golden.pick(3, 8, in_order=False).tolist() == [0, 1, 2]
    assert golden.pick(100, 3, in_order=True).tolist() == [0, 1, 2]


def test_wire_and_real_values() -> None:
    """real = scale (q - zero point); what a client gets stays int8 where --io quantized says so."""
    raw = {"y": np.array([[[3, 5]]], np.int8)}
    np.testing.assert_array_equal(golden.to_wire(raw, [INT8])["y"], [[[0.0, 1.0]]])
    assert golden.to_wire(raw, [RAW8])["y"].dtype == np.int8
    np.testing.assert_array_equal(golden.to_real(raw, [RAW8])["y"], [[[0.0, 1.0]]])
    real = {"y": np.array([[[0.0, 1.0]]], np.float32)}
    np.testing.assert_array_equal(golden.to_model(real, [INT8])["y"], raw["y"])
    made = golden.make(real, real, raw, [RAW8], {"y": 2.0})
    np.testing.assert_array_equal(made.inputs["y"], raw["y"])
    assert golden.make(real, real, real, [INT8], {"y": 2.0}).inputs["y"].dtype == np.float32


@pytest.mark.parametrize(
    ("spec", "mode", "floor"),
    [
        (INT8, "int8", 2 * 0.5),
        (RAW8, "int8", 2.0),
        (FLOAT, "none", 1e-4 * 8),
        (FLOAT, "float16", 1e-2 * 8),
        (FLOAT, "dynamic", 2e-2 * 8),
        (TensorSpec("y", "int64", (1, 2)), "none", 0.0),
    ],
)
def test_floors(spec: TensorSpec, mode: str, floor: float) -> None:
    """Two steps in the client's unit for integers, a share of the largest value for floats, none for indices."""
    reference = {"y": np.array([[[-8, 4]]], spec.wire_dtype)}
    assert golden.floors(reference, [spec], MODES[mode])["y"] == pytest.approx(floor, rel=0.01)


def test_every_runtime_that_agrees_passes_with_a_margin() -> None:
    """One kernel three steps off: the tolerance is twice that; all equal: the floor."""
    reference = np.full((4, 1, 2), 10, np.int8)
    wire = golden.to_wire({"y": reference}, [INT8])
    floor = golden.floors(wire, [INT8], MODES["int8"])
    agreed = golden.agreements([outcome("one", reference), outcome("two", reference, 3)], wire, [INT8])
    assert [a.errors["y"] for a in agreed] == [0.0, 1.5]
    assert golden.tolerances(floor, agreed)["y"] == 3.0
    assert golden.tolerances(floor, agreed[:1])["y"] == pytest.approx(1.0, rel=0.01)


def test_rubbish_is_refused_and_not_tolerated() -> None:
    """A runtime 50 steps off is beyond the cap and named with its figure; NaN and a wrong shape are too."""
    reference = np.full((4, 1, 2), 10, np.int8)
    wire = golden.to_wire({"y": reference}, [INT8])
    caps = golden.caps(golden.floors(wire, [INT8], MODES["int8"]))
    good, bad = golden.agreements([outcome("good", reference), outcome("bad", reference, 50)], wire, [INT8])
    assert good.beyond(caps) == ""
    assert bad.beyond(caps).startswith("output 'y' is off by 25 (at most 10")
    floats = {"y": np.full((4, 1, 2), np.nan, np.float32)}
    broken = Outcome("nan", "", floats, floats)
    assert golden.agreements([broken], {"y": np.ones((4, 1, 2), np.float32)}, [FLOAT])[0].beyond({"y": 1e9})
    short = Outcome("short", "", {"y": reference[:2]}, {"y": reference[:2]})
    assert golden.agreements([short], wire, [INT8])[0].beyond({"y": 1e9})
    assert golden.agreements([Outcome("gone", "does not load")], wire, [INT8]) == []
