"""From decoded pixels to the image input a bundle describes.

Resizing is Pillow's BILINEAR: a triangle filter with half-pixel centres whose support grows when an image is made
smaller (https://pillow.readthedocs.io/en/stable/handbook/concepts.html#concept-filters). That is what
`tf.image.resize(..., "bilinear", antialias=True)` computes, but for Pillow's rounding to whole pixel values; plain
`tf.image.resize`, without `antialias`, differs when an image gets smaller.
GRAY is Pillow's "L": ITU-R 601-2 luma, 0.299 R + 0.587 G + 0.114 B, rounded, taken before resizing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

from edged.bundle import ImagePreprocess
from edged.errors import Code, RequestError

Array = npt.NDArray[Any]
_BILINEAR = Image.Resampling.BILINEAR


def write_image(pixels: Array, spec: ImagePreprocess, out: Array) -> None:
    """Preprocess `pixels` (uint8 [h, w, 3], RGB) into the input `out`, which has a batch of 1.

    Where `out` is of integers the values are rounded to nearest, ties to even, and saturate at the dtype's ends.
    Raises FAILED_PRECONDITION when the bundle describes an image that is not this input's shape.
    """
    values = apply_image(pixels, spec)
    if out.shape != (1, *values.shape):
        what = (
            f"the bundle's preprocessing makes shape {[1, *values.shape]}, input {spec.input!r} has {list(out.shape)}"
        )
        raise RequestError(Code.FAILED_PRECONDITION, what)
    if out.dtype.kind in "iu":
        limits = np.iinfo(out.dtype)
        np.clip(np.rint(values, out=values), limits.min, limits.max, out=values)
    np.copyto(out[0], values, casting="unsafe")


def apply_image(pixels: Array, spec: ImagePreprocess) -> Array:
    """Return the image (uint8 [h, w, 3], RGB) as float32 [height, width, c], or [c, height, width] for NCHW.

    Resized, brought to the bundle's channels, then `(pixel * scale - mean) / std`; `mean` and `std` are one value or
    one per channel, in the order of `channels`.
    """
    values = _resized(pixels, spec).astype(np.float32)
    if spec.channels == "GRAY":
        values = values[..., np.newaxis]
    elif spec.channels == "BGR":
        values = values[..., ::-1]
    values = _normalised(values, spec)
    return values.transpose(2, 0, 1) if spec.layout == "NCHW" else values


def _normalised(values: Array, spec: ImagePreprocess) -> Array:
    """Apply scale, mean and std in place, skipping those that change nothing."""
    if spec.scale != 1.0:
        values *= np.float32(spec.scale)
    if any(spec.mean):
        values -= np.array(spec.mean, np.float32)
    if any(std != 1.0 for std in spec.std):
        values /= np.array(spec.std, np.float32)
    return values


def _resized(pixels: Array, spec: ImagePreprocess) -> Array:
    """Return uint8 [height, width, 3], or [height, width] for GRAY."""
    gray, size = spec.channels == "GRAY", (spec.width, spec.height)
    if pixels.shape[1::-1] == size and not gray:
        return pixels
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if gray:
        image = image.convert("L")
    if spec.resize == "stretch":
        image = image.resize(size, _BILINEAR)
    elif spec.resize == "crop":
        # The largest centred box of the wanted aspect, resized: the same as resizing first, without its rounding.
        image = ImageOps.fit(image, size, _BILINEAR)
    else:
        image = _letterboxed(image, size, spec.pad)
    return np.asarray(image)


def _letterboxed(image: Image.Image, size: tuple[int, int], pad: int) -> Image.Image:
    """Fit the whole image in the middle of a canvas filled with `pad`; an odd pixel of border is right or below."""
    ratio = min(size[0] / image.width, size[1] / image.height)
    # A sliver of an image still gets one row of pixels.
    inner = max(1, round(image.width * ratio)), max(1, round(image.height * ratio))
    canvas = Image.new(image.mode, size, (pad,) * len(image.getbands()) if image.mode != "L" else pad)
    canvas.paste(image.resize(inner, _BILINEAR), ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return canvas
