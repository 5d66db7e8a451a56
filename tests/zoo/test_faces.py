"""mtcnn: detectors saved as anybody would save them, and one that takes an image of any size."""

from __future__ import annotations

import pytest
from support import zoo, zoobare, zoojudge, zootable

# Which output the labels are of.
LABELLED = ("--postprocess", "post.yaml")


@pytest.mark.parametrize(
    ("name", "mode"), [("faces_r", "none"), ("faces_r", "int8"), ("faces_o", "none"), ("faces_o", "dynamic")]
)
def test_faces_are_told_from_what_is_none(name: str, mode: str, bare: str) -> None:
    """Every held-out face and other piece is told as TensorFlow tells it; float answers are TensorFlow's own."""
    model, made = zoo.made(name), zoo.convert(name, mode, *LABELLED)
    answers = zoobare.run(made.model, model.inputs, bare).answers
    agreement = zoojudge.agreement(answers["faces"], model.floats["faces"])
    zootable.add(made, f"agreement {agreement:.3f}")
    assert zoojudge.accuracy(model.floats["faces"], model.y) == 1.0
    assert agreement == 1.0
    if mode == "none":
        assert max(zoojudge.worst(answers[key], model.floats[key]) for key in answers) < 1e-5


def test_an_image_of_any_size_asks_for_a_size() -> None:
    """The P net's open height and width are named, with the flag and an example; nothing is guessed."""
    made = zoo.convert("faces_p", "none")
    zootable.add(made)
    assert made.code == 2
    assert "--shape x=1,64,64,3" in made.error


def test_the_size_that_was_given_is_served(bare: str) -> None:
    """With --shape the P net answers TensorFlow's boxes, and the document says what was pinned."""
    model, made = zoo.made("faces_p"), zoo.convert("faces_p", "int8", "--shape", "x=1,64,64,3")
    answers = zoobare.run(made.model, model.inputs, bare).answers
    agreement = zoojudge.agreement(answers["faces"], model.floats["faces"])
    zootable.add(made, f"agreement {agreement:.3f}")
    assert agreement >= 0.99
    assert {(p["dimension"], p["size"]) for p in made.facts["source"]["pinned"]} == {(0, 1), (1, 64), (2, 64)}
