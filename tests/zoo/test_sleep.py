"""sleepecg's recurrent model: the converter dies of it in int8, other modes work."""

from __future__ import annotations

import pytest
from support import zoo, zoobare, zoojudge, zootable

LEAST = {"none": 1.0, "float16": 0.999, "dynamic": 0.95}


@pytest.mark.parametrize("mode", list(LEAST))
def test_sleep_stages_agree(mode: str, bare: str) -> None:
    """In the modes that work, the stage of every half minute is TensorFlow's, in all or nearly all cases."""
    model, made = zoo.made("sleep"), zoo.convert("sleep", mode)
    agreement = zoojudge.agreement(
        zoobare.run(made.model, model.inputs, bare).answers["output_0"], model.floats["output_0"]
    )
    zootable.add(made, f"agreement {agreement:.4f}")
    assert agreement >= LEAST[mode]


def test_the_converters_death_is_one_line_with_ways_out() -> None:
    """int8 kills TensorFlow's converter: exit 70, one line with the signal, and modes that were tried and pass."""
    made = zoo.convert("sleep", "int8")
    zootable.add(made)
    assert made.code == 70
    assert "SIGSEGV while converting to int8" in made.error
    assert made.attempts["int8"]["state"] == "died"
    for mode in ("float16", "dynamic"):
        assert f"--quantize {mode} keeps every limit" in made.error
        assert made.attempts[mode]["state"] == "passed"


def test_the_keras_file_itself_is_taken(bare: str) -> None:
    """A .keras file is exported in the child: its answers are those of the SavedModel that Keras exported here."""
    model = zoo.made("sleep")
    made = zoo.convert("sleep", "none", "--shape", "input_layer=1,40,36", "--eval", "layer.npz", model="model.keras")
    answers = zoobare.run(made.model, {"input_layer": model.inputs["x"]}, bare).answers
    assert made.facts["source"]["kind"] != "SavedModel"
    (name,) = answers
    assert zoojudge.worst(answers[name], model.floats["output_0"]) < 1e-5
