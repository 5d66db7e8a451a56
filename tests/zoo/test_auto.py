"""`--quantize auto`: every mode tried and measured, and the choice that a careful engineer would make."""

from __future__ import annotations

import functools

import pytest
from support import zoo, zoobare, zoojudge, zootable
from support.zoo import Conversion

FLAGS: dict[str, tuple[str, ...]] = {
    "digits": (),
    "motions": (),
    "water": (),
    "pitch": (),
    "faces_r": ("--postprocess", "post.yaml"),
    "faces_o": ("--postprocess", "post.yaml"),
}
# Share of the float file's bytes that the choice may take.
MOST = {"digits": 0.35, "motions": 0.55, "water": 0.4, "pitch": 0.6, "faces_r": 0.35, "faces_o": 0.35}


@functools.cache
def auto(name: str) -> Conversion:
    """Convert with auto, once."""
    return zoo.convert(name, "auto", *FLAGS[name])


@pytest.mark.parametrize("name", list(FLAGS))
def test_the_choice_is_small_and_passes(name: str) -> None:
    """The choice passed every gate and takes its share of float's bytes; no other that passed is much smaller."""
    made = auto(name)
    passed = {mode: a["model_bytes"] for mode, a in made.attempts.items() if a["state"] == "passed"}
    size = made.model.stat().st_size
    zootable.add(made)
    assert passed[made.facts["chosen"]] == size
    assert size <= MOST[name] * passed["none"]
    assert size <= 1.1 * min(passed.values())


@pytest.mark.parametrize("name", list(FLAGS))
def test_every_mode_is_told(name: str) -> None:
    """Each mode has a verdict: passed with bytes, a time and figures for every output, or the reason why not."""
    made = auto(name)
    outputs = set(zoo.made(name).floats)
    assert {"none", "float16", "dynamic", "int8", "int16x8"} <= set(made.attempts)
    for attempt in made.attempts.values():
        if attempt["state"] != "passed":
            assert attempt["reasons"]
            continue
        devices = [t for t in attempt["targets"] if t["delegate"] == "default" and t["state"] == "passed"]
        assert devices
        assert all(t["p50_us"] > 0 and {o["output"] for o in t["outputs"]} == outputs for t in devices)


def test_digits_and_recordings_lose_at_most_a_point(bare: str) -> None:
    """The chosen files, in a bare Interpreter, answer as many labelled samples right as float, less a point."""
    for name in ("digits", "motions"):
        model = zoo.made(name)
        answers = zoobare.run(auto(name).model, model.inputs, bare).answers["output_0"]
        assert zoojudge.accuracy(answers, model.y) >= zoojudge.accuracy(model.floats["output_0"], model.y) - 0.01


def test_the_water_flow_grows_its_error_by_at_most_a_twentieth(bare: str) -> None:
    """The chosen file's mean absolute error, counted here, is at most 5 % above TensorFlow's."""
    model = zoo.made("water")
    after = zoojudge.mae(zoobare.run(auto("water").model, model.inputs, bare).answers["output_0"], model.y)
    before = zoojudge.mae(model.floats["output_0"], model.y)
    zootable.add(auto("water"), f"MAE {before:.4f} to {after:.4f}")
    assert after <= 1.05 * before


@pytest.mark.parametrize("name", ["faces_r", "faces_o"])
def test_faces_are_still_told(name: str, bare: str) -> None:
    """The chosen file tells every held-out face from every other piece."""
    model = zoo.made(name)
    assert zoojudge.accuracy(zoobare.run(auto(name).model, model.inputs, bare).answers["faces"], model.y) == 1.0
