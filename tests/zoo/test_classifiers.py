"""Classifiers and a regression trained on real data: int8 costs them at most what the gates allow."""

from __future__ import annotations

import pytest
from support import zoo, zoobare, zoojudge, zootable

MODES = {
    "digits": ("none", "float16", "dynamic", "int8"),
    "motions": ("none", "int8"),
    "power": ("int8",),
    "vowels": ("int8",),
}
CASES = [(name, mode) for name, modes in MODES.items() for mode in modes]
# Of the float model on the held-out samples: what the papers' simple models reach and ours must, to be worth a test.
LEAST = {"digits": 0.97, "motions": 0.97, "power": 0.95, "vowels": 0.95}


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_a_classifier_loses_at_most_a_point(name: str, mode: str, bare: str) -> None:
    """On labelled samples a bare Interpreter counts at most a point fewer right answers than TensorFlow does."""
    model, made = zoo.made(name), zoo.convert(name, mode)
    before = zoojudge.accuracy(model.floats["output_0"], model.y)
    after = zoojudge.accuracy(zoobare.run(made.model, model.inputs, bare).answers["output_0"], model.y)
    zootable.add(made, f"accuracy {before:.4f} to {after:.4f}")
    assert before >= LEAST[name]
    assert after >= before - 0.01


@pytest.mark.parametrize("name", list(MODES))
def test_the_document_tells_the_accuracy_that_was_counted(name: str) -> None:
    """The manifest's two accuracies are those of numpy on TensorFlow's answers and on a device's kernels."""
    model, made = zoo.made(name), zoo.convert(name, "int8")
    details = made.manifest["quality"][0]["details"]
    answers = zoobare.run(made.model, model.inputs, kernels=zoobare.DEFAULT).answers["output_0"]
    assert details["accuracy_float"] == pytest.approx(zoojudge.accuracy(model.floats["output_0"], model.y), abs=1e-5)
    assert details["accuracy"] == pytest.approx(zoojudge.accuracy(answers, model.y), abs=1e-5)


def test_int8_of_the_water_flow_is_refused_for_its_error() -> None:
    """Uniform int8 raises the mean absolute error by over 5 % though its cosine is 1: refused, both errors told."""
    model, made = zoo.made("water"), zoo.convert("water", "int8")
    before = zoojudge.mae(model.floats["output_0"], model.y)
    figures = made.attempts["int8"]["targets"][0]["outputs"][0]["figures"]
    zootable.add(made, f"MAE {before:.4f} to {figures['mae']:.4f}")
    assert made.code == 65
    assert figures["mae_float"] == pytest.approx(before, rel=1e-4)
    assert figures["mae"] > 1.05 * before
    assert figures["cosine"] > 0.999
    assert "mae" in made.error


@pytest.mark.parametrize("mode", ["dynamic", "mixed"])
def test_the_water_flow_keeps_its_error_in_other_modes(mode: str, bare: str) -> None:
    """Dynamic range, and int8 with the layers kept float that a search found, grow the error by at most 5 %."""
    model, made = zoo.made("water"), zoo.convert("water", mode)
    before = zoojudge.mae(model.floats["output_0"], model.y)
    after = zoojudge.mae(zoobare.run(made.model, model.inputs, bare).answers["output_0"], model.y)
    zootable.add(made, f"MAE {before:.4f} to {after:.4f}")
    assert after <= 1.05 * before
    assert made.model.stat().st_size < 0.4 * zoo.convert("water", "none").model.stat().st_size


def test_the_search_tells_what_each_layer_costs() -> None:
    """The table of a mixed model names layers, those kept float among them, and what was gained; within its budget."""
    search = zoo.convert("water", "mixed").attempts["mixed"]["mixed"]
    kept = [cost for cost in search["costs"] if cost["kept_float"]]
    assert 0 < len(kept) < len(search["costs"])
    assert search["final"] > search["uniform"]
    assert search["tried"] <= search["budget"] == 60
