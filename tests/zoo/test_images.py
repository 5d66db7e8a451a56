"""MobileNetV2 and ResNet50 with random weights: size and speed, not answers."""

from __future__ import annotations

import pytest
from support import zoo, zoobare, zootable

# Random weights make classes of no meaning: which of a thousand is highest says nothing.
ANY = ("--min-agreement", "0")


@pytest.mark.parametrize("name", ["mobilenet", "resnet"])
def test_int8_is_a_quarter_of_the_size_and_faster(name: str) -> None:
    """int8 takes at most 30 % of float's bytes, and XNNPACK infers it in less time."""
    plain, int8 = (zoo.convert(name, mode, *ANY) for mode in ("none", "int8"))
    inputs = zoo.made(name).inputs
    times = [zoobare.run(made.model, inputs, kernels=zoobare.DEFAULT).p50_us for made in (plain, int8)]
    for made in (plain, int8):
        zootable.add(made)
    assert int8.model.stat().st_size <= 0.3 * plain.model.stat().st_size
    assert times[1] < times[0]


@pytest.mark.parametrize("name", ["mobilenet", "resnet"])
def test_every_runtime_that_loads_it_is_named(name: str, bare: str) -> None:
    """A runtime stands in loaded_on, or the words say why not; and a bare Interpreter does load the file there."""
    made = zoo.convert(name, "int8", *ANY)
    some = {key: array[:1] for key, array in zoo.made(name).inputs.items()}
    assert not zoobare.run(made.model, some, bare).error
    named = any(text.startswith(bare) for text in made.manifest["requirements"]["loaded_on"])
    assert named or f"{bare} " in made.words
