"""Samples from a directory of images, made into the input as the bundle's preprocessing will make them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from converters import plain
from converters.samples import Array, InputInfo, Samples, bind
from edged.bundle import ImagePreprocess
from edged.errors import BadDataError, UnavailableError, UsageError

IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp"})


def load(folder: Path, inputs: tuple[InputInfo, ...], image: ImagePreprocess | None) -> Samples:
    """Read every image of the directory, by name, into the model's only input.

    Raises UsageError without preprocessing, BadDataError, or UnavailableError where the package for images is missing.
    """
    if image is None:
        raise UsageError(folder.name, "a directory of images needs --preprocess", "how pixels become the input")
    info = next(info for info in inputs if info.name == image.input)
    if len(inputs) > 1:
        raise BadDataError(folder.name, f"images are for one input, the model has {len(inputs)}", "give a .npz")
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES)
    if not paths:
        raise BadDataError(str(folder), f"no image in it ({', '.join(sorted(IMAGES))})")
    arrays = np.stack([_image(path, image, info) for path in paths])
    return bind({info.name: arrays}, inputs, folder.name)


def _image(path: Path, image: ImagePreprocess, info: InputInfo) -> Array:
    try:
        from PIL import Image  # noqa: PLC0415  # an extra

        from edged.preprocess import write_image  # noqa: PLC0415  # needs the same extra
    except ImportError as exc:
        raise UnavailableError("images", "Pillow is not installed", "pip install 'edged[image]'") from exc
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as exc:
        raise BadDataError(str(path), f"cannot be read as an image: {exc}") from exc
    whole = np.empty((1, *info.shape[1:]), info.dtype)
    write_image(pixels, image, whole)
    one: Array = whole[0]
    return one


def complete_image(raw: Mapping[str, Any], inputs: tuple[InputInfo, ...], source: str) -> ImagePreprocess:
    """Build ImagePreprocess, with `input`, `width` and `height` from the model where they are left out.

    Raises BadDataError when they contradict the model's input, or a key is wrong.
    """
    pictures = [info for info in inputs if len(info.shape) == 4]  # noqa: PLR2004  # batch, two sides, channels
    name = raw.get("input", pictures[0].name if len(pictures) == 1 else "")
    info = next((info for info in pictures if info.name == name), None)
    if info is None:
        listed = ", ".join(f"{i.name} {list(i.shape)}" for i in inputs)
        raise BadDataError(source, f"input: {name!r} is no image input of the model", f"inputs: {listed}")
    nchw = raw.get("layout") == "NCHW"
    height, width = info.shape[2:] if nchw else info.shape[1:3]
    built = plain.build(ImagePreprocess, {"input": name, "width": width, "height": height, **raw}, source)
    channels = info.shape[1] if nchw else info.shape[3]
    wanted = (height, width, channels)
    if (built.height, built.width, 1 if built.channels == "GRAY" else 3) != wanted:
        raise BadDataError(source, f"does not fit input {name!r} of shape {list(info.shape)}", f"layout {built.layout}")
    return built
