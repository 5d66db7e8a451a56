"""Preprocessing against float64 numpy and Pillow's own ImageOps, and against pictures whose result is known by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from edged import preprocess
from edged.bundle import ImagePreprocess
from edged.errors import Code, RequestError

BILINEAR = Image.Resampling.BILINEAR
PICTURE = np.random.default_rng(5).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def spec(width: int = 60, height: int = 40, **more: Any) -> ImagePreprocess:
    return ImagePreprocess("x", width, height, **more)


def test_pixels_of_the_right_size_are_taken_as_they_are() -> None:
    """No resampling, float32, HWC."""
    got = preprocess.apply_image(PICTURE, spec())
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, PICTURE)


@pytest.mark.parametrize("size", [(30, 20), (33, 17), (90, 100), (1, 1)])
def test_stretch_is_pillows_bilinear(size: tuple[int, int]) -> None:
    """Smaller, odd, larger, a single pixel."""
    want = np.asarray(Image.fromarray(PICTURE).resize(size, BILINEAR))
    np.testing.assert_array_equal(preprocess.apply_image(PICTURE, spec(*size)), want)


def test_making_smaller_averages() -> None:
    """Antialiased: a chessboard of single pixels becomes grey, where picking pixels would give black or white."""
    board = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    small = preprocess.apply_image(np.repeat(board[..., np.newaxis], 3, axis=-1), spec(8, 8))
    assert np.abs(small - 127.5).max() < 8


@pytest.mark.parametrize("size", [(20, 20), (60, 10), (10, 40), (80, 80)])
def test_crop_is_the_centre(size: tuple[int, int]) -> None:
    """As ImageOps.fit does it, and no pixel from outside the centred box shows."""
    want = np.asarray(ImageOps.fit(Image.fromarray(PICTURE), size, BILINEAR))
    np.testing.assert_array_equal(preprocess.apply_image(PICTURE, spec(*size, resize="crop")), want)
    marked = PICTURE.copy()
    marked[:, :20] = marked[:, 40:] = 255
    marked[:, 20:40] = 7
    assert (preprocess.apply_image(marked, spec(20, 40, resize="crop")) == 7).all()


@pytest.mark.parametrize(
    ("size", "rows", "columns"),
    [
        ((30, 30), slice(5, 25), slice(0, 30)),
        ((60, 20), slice(0, 20), slice(15, 45)),
        ((60, 40), slice(0, 40), slice(0, 60)),
    ],
)
def test_letterbox_keeps_the_whole_picture_in_the_middle(size: tuple[int, int], rows: slice, columns: slice) -> None:
    """The box is where arithmetic says, it holds the picture resized, and all else is the padding."""
    got = preprocess.apply_image(PICTURE, spec(*size, resize="letterbox", pad=114))
    inner = (columns.stop - columns.start, rows.stop - rows.start)
    want = np.full((size[1], size[0], 3), 114.0)
    want[rows, columns] = np.asarray(Image.fromarray(PICTURE).resize(inner, BILINEAR))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("resize", ["stretch", "crop", "letterbox"])
@pytest.mark.parametrize("shape", [(1, 5000, 3), (5000, 1, 3), (1, 1, 3)])
def test_slivers_become_pictures_too(resize: Any, shape: tuple[int, ...]) -> None:
    """A picture one pixel high is no error; in a letterbox it keeps one row."""
    got = preprocess.apply_image(np.full(shape, 200, np.uint8), spec(16, 12, resize=resize, pad=0))
    assert got.shape == (12, 16, 3)
    assert got.max() == 200


@pytest.mark.parametrize("channels", ["RGB", "BGR"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_the_formula_per_channel(channels: Any, layout: Any) -> None:
    """(pixel * scale - mean) / std in float64, mean and std in the order of the model's channels."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    got = preprocess.apply_image(PICTURE, spec(channels=channels, layout=layout, scale=1 / 255, mean=mean, std=std))
    ordered = PICTURE.astype(np.float64)[..., ::-1] if channels == "BGR" else PICTURE.astype(np.float64)
    want = (ordered / 255 - np.array(mean)) / np.array(std)
    want = np.moveaxis(want, -1, 0) if layout == "NCHW" else want
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("scale", "mean", "std", "want"), [(1.0, 127.5, 127.5, 1.0), (2.0, 0.0, 1.0, 510.0), (1.0, 0.0, 5.0, 51.0)]
)
def test_one_value_serves_every_channel(scale: float, mean: float, std: float, want: float) -> None:
    """Each of the three steps by itself, at white."""
    white = np.full((2, 2, 3), 255, np.uint8)
    got = preprocess.apply_image(white, spec(2, 2, scale=scale, mean=(mean,), std=(std,)))
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize(("layout", "shape"), [("NHWC", (40, 60, 1)), ("NCHW", (1, 40, 60))])
def test_gray_is_the_luma_of_itu_r_601(layout: Any, shape: tuple[int, ...]) -> None:
    """0.299 R + 0.587 G + 0.114 B, to the rounding; one channel in either layout."""
    got = preprocess.apply_image(PICTURE, spec(channels="GRAY", layout=layout))
    want = PICTURE.astype(np.float64) @ [0.299, 0.587, 0.114]
    assert got.shape == shape
    np.testing.assert_allclose(got.reshape(40, 60), want, atol=0.51)


def test_gray_can_be_letterboxed() -> None:
    """The padding is one grey value."""
    got = preprocess.apply_image(PICTURE, spec(60, 60, channels="GRAY", resize="letterbox", pad=114))
    assert (got[:10] == 114).all()
    assert (got[50:] == 114).all()


def test_integer_inputs_are_rounded_and_saturate() -> None:
    """To nearest, ties to even, clipped at the dtype's ends; uint8 with the identity takes the pixels."""
    pixels = np.array([[[0, 1, 3]], [[5, 254, 255]]], np.uint8)
    out = np.zeros((1, 2, 1, 3), np.int8)
    preprocess.write_image(pixels, spec(1, 2, scale=0.5), out)
    assert out.ravel().tolist() == [0, 0, 2, 2, 127, 127]  # 0.5 -> 0, 1.5 -> 2, 2.5 -> 2, 127.5 -> 128 -> 127
    preprocess.write_image(pixels, spec(1, 2, mean=(128.0,)), out)
    assert out.ravel().tolist() == [-128, -127, -125, -123, 126, 127]
    same = np.zeros((1, 2, 1, 3), np.uint8)
    preprocess.write_image(pixels, spec(1, 2), same)
    np.testing.assert_array_equal(same[0], pixels)


@pytest.mark.parametrize("shape", [(2, 40, 60, 3), (1, 60, 40, 3), (40, 60, 3), (1, 3, 40, 60)])
def test_an_input_of_another_shape_is_the_bundles_fault(shape: tuple[int, ...]) -> None:
    """Larger batches, swapped sides, no batch, the other layout."""
    with pytest.raises(RequestError) as caught:
        preprocess.write_image(PICTURE, spec(), np.zeros(shape, np.float32))
    assert caught.value.code is Code.FAILED_PRECONDITION
