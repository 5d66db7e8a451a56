"""A directory of images as samples, and preprocessing completed from the model's input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from converters import imagesource
from converters.samples import InputInfo
from edged.bundle import ImagePreprocess
from edged.errors import BadDataError, UsageError

X = InputInfo("x", "float32", (1, 4))
IMAGE = InputInfo("image", "float32", (1, 4, 6, 3))


def test_images_become_the_input(tmp_path: Path) -> None:
    """A directory of images: sorted, resized and scaled as --preprocess says; other files are left alone."""
    image = pytest.importorskip("PIL.Image")
    for i, name in enumerate(("b.png", "a.png")):
        image.fromarray(np.full((8, 12, 3), (10 + i, 20, 30), np.uint8)).save(tmp_path / name)
    (tmp_path / "note.txt").write_text("no image")
    spec = ImagePreprocess("image", width=6, height=4, scale=0.5, mean=(1.0, 2.0, 3.0))
    samples = imagesource.load(tmp_path, (IMAGE,), spec)
    expected = np.array([[11, 20, 30], [10, 20, 30]], np.float32) * 0.5 - np.float32([1, 2, 3])
    np.testing.assert_allclose(samples.arrays["image"][:, 0, 2, 3], expected)
    with pytest.raises(UsageError, match="needs --preprocess"):
        imagesource.load(tmp_path, (IMAGE,), None)


def test_preprocessing_takes_its_size_from_the_model() -> None:
    """input, width and height come from the only image input; a size that contradicts it is refused."""
    made = imagesource.complete_image({"scale": 0.25}, (IMAGE, X), "p.yaml")
    assert (made.input, made.width, made.height, made.scale) == ("image", 6, 4, 0.25)
    nchw = InputInfo("image", "float32", (1, 3, 4, 6))
    assert imagesource.complete_image({"layout": "NCHW"}, (nchw,), "p").width == 6
    for raw, says in (({"width": 5}, "does not fit"), ({"channels": "GRAY"}, "does not fit"), ({"input": "x"}, "'x'")):
        with pytest.raises(BadDataError, match=says):
            imagesource.complete_image(raw, (IMAGE, X), "p.yaml")


def test_images_are_for_one_input_only(tmp_path: Path) -> None:
    """With a second input, or without any image, a directory is refused."""
    spec = ImagePreprocess("image", width=6, height=4)
    with pytest.raises(BadDataError, match="no image in it"):
        imagesource.load(tmp_path, (IMAGE,), spec)
    with pytest.raises(BadDataError, match="images are for one input, the model has 2"):
        imagesource.load(tmp_path, (IMAGE, X), spec)
