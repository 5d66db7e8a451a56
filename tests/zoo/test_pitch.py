"""basic-pitch: three outputs, of which the headline one hides the damage of the others."""

from __future__ import annotations

import pytest
from support import zoo, zoobare, zoojudge, zootable
from support.zoo import Conversion

OUTPUTS = ("contour", "note", "onset")


def f1s(made: Conversion, runtime: str) -> dict[str, float]:
    """Return every output's frame F1 in a bare Interpreter, against TensorFlow."""
    model = zoo.made("pitch")
    answers = zoobare.run(made.model, model.inputs, runtime).answers
    return {name: zoojudge.frame_f1(answers[name], model.floats[name]) for name in OUTPUTS}


def test_float_is_the_authors_own_file(bare: str) -> None:
    """On the same runtime our float file answers as the one in the package, within 1e-5; the file's hash is theirs."""
    model, made = zoo.made("pitch"), zoo.convert("pitch", "none")
    ours = zoobare.run(made.model, model.inputs, bare).answers
    theirs = zoobare.run(model.folder / "authors.tflite", model.inputs, bare).answers
    worst = max(zoojudge.worst(ours[name], theirs[name]) for name in OUTPUTS)
    zootable.add(made, f"{worst:.1e} from its authors' on {bare}")
    assert worst <= 1e-5
    # Music was heard: a comparison of silence proves nothing.
    assert all((model.floats[name] > 0.5).sum() > 100 for name in OUTPUTS)


def test_a_quantized_file_ships_only_with_every_output_sound(bare: str) -> None:
    """What auto chose has a frame F1 of .95 on every output, counted by numpy; int8 and dynamic range are refused."""
    made = zoo.convert("pitch", "auto")
    found = f1s(made, bare)
    zootable.add(made, "F1 " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    assert min(found.values()) >= 0.95, found
    for mode in ("int8", "dynamic"):
        assert made.attempts[mode]["state"] == "refused"
        assert made.attempts[mode]["reasons"]


def test_a_refusal_names_the_outputs_that_are_damaged() -> None:
    """Dynamic range damages outputs but not all figures: each output has its F1, and the line names what fails."""
    made = zoo.convert("pitch", "dynamic")
    assert made.code == 65
    outputs = {o["output"]: o["figures"]["f1"] for o in made.attempts["dynamic"]["targets"][0]["outputs"]}
    assert set(outputs) == set(OUTPUTS)
    damaged = [name for name, f1 in outputs.items() if f1 < 0.95]
    assert damaged
    assert all(f"{name!r}: f1" in made.error for name in damaged)


def test_the_choice_is_small_and_sound() -> None:
    """What auto chose is at most 60 % of the float file."""
    made, plain = zoo.convert("pitch", "auto"), zoo.convert("pitch", "none")
    share = made.model.stat().st_size / plain.model.stat().st_size
    assert share <= 0.6, made.words


def test_the_reports_f1_is_numpys() -> None:
    """The document's F1 of each output of the chosen file is the one counted here, on the same kernels."""
    model, made = zoo.made("pitch"), zoo.convert("pitch", "auto")
    answers = zoobare.run(made.model, model.inputs, kernels=zoobare.DEFAULT).answers
    targets = made.attempts[made.facts["chosen"]]["targets"]
    (told,) = [t for t in targets if t["runtime"].startswith("ai-edge") and t["delegate"] == "default"]
    assert {output["output"] for output in told["outputs"]} == set(OUTPUTS)
    for output in told["outputs"]:
        name = output["output"]
        assert output["figures"]["f1"] == pytest.approx(zoojudge.frame_f1(answers[name], model.floats[name]), abs=1e-4)
