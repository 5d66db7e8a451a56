"""What a model is calibrated on decides: BasicMotions with its own data, and with three things that are no data."""

from __future__ import annotations

import pytest
from support import zoo, zootable


def test_noise_is_refused_by_what_it_does() -> None:
    """Calibrated on noise: exit 65, the figure that fails is named, and what to do about it."""
    made = zoo.convert("motions", "int8", "--calibration", "noise.npz", calibrated=False)
    zootable.add(made)
    assert made.code == 65
    assert "accuracy is" in made.error
    assert "is --calibration what the model will see" in made.error


@pytest.mark.parametrize("data", ["one", "zeros"])
def test_calibration_that_is_none_is_refused(data: str) -> None:
    """One sample over and over, and zeros: exit 65 before anything is converted, and what is wanted instead."""
    made = zoo.convert("motions", "int8", "--calibration", f"{data}.npz", calibrated=False)
    zootable.add(made)
    assert made.code == 65
    assert f"{data}.npz: all " in made.error
    assert "samples are the same: nothing to calibrate with" in made.error


def test_its_own_data_calibrates() -> None:
    """The same model and flags with real recordings pass, with every answer right as in float."""
    made = zoo.convert("motions", "int8")
    details = made.manifest["quality"][0]["details"]
    assert (details["accuracy_float"], details["accuracy"]) == (1.0, 1.0)


def test_values_outside_the_calibrated_range_are_counted() -> None:
    """Calibrated on noise of -1 to 1: the document tells the share of held-out samples beyond, as numpy has it."""
    made = zoo.convert("motions", "int8", "--calibration", "noise.npz", calibrated=False)
    x, noise = zoo.made("motions").inputs["x"], zoo.made("motions").arrays("noise")["x"]
    share = ((x < noise.min()) | (x > noise.max())).any((1, 2)).mean()
    assert 0.5 < share < 1
    assert made.report["outside"]["x"] == pytest.approx(share, abs=1e-4)
