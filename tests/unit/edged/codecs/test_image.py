"""JPEG and PNG requests: each kind of file becomes the right RGB pixels, with and without simplejpeg, or is refused."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.codec_cases import OUTPUT, SHAPE, Array, empty_inputs, image_signature

from edged.bundle import ImagePreprocess, Signature, TensorSpec
from edged.codecs import image
from edged.errors import Code, RequestError

PIXELS = np.random.default_rng(3).integers(0, 256, (*SHAPE[1:3], 4), dtype=np.uint8)
CODECS = {"jpeg": image.Jpeg(), "png": image.Png()}
TURBO = pytest.mark.parametrize("turbo", [True, False], ids=["simplejpeg", "Pillow"])


@pytest.fixture
def decoder(turbo: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # a parametrized fixture
    if not turbo:
        monkeypatch.setattr(image, "simplejpeg", None)
    elif image.simplejpeg is None:  # type: ignore[attr-defined]  # an import, looked at from outside
        pytest.skip("simplejpeg is not installed")


def file_of(picture: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def picture(mode: str) -> Image.Image:
    rgba = Image.fromarray(PIXELS)
    return rgba if mode == "RGBA" else rgba.convert("RGB").convert(mode) if mode != "LA" else rgba.convert("LA")


def decode(name: str, payload: bytes, signature: Signature | None = None) -> Array:
    signature = signature or image_signature("uint8")
    into = empty_inputs(signature)
    CODECS[name].decode(payload, signature, into)
    pixels: Array = into[0][0]
    return pixels


def refused(name: str, payload: bytes, signature: Signature | None = None) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode(name, payload, signature)
    return caught.value


@pytest.mark.usefixtures("decoder")
@TURBO
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}], ids=str)
def test_each_jpeg_is_what_pillow_sees(mode: str, options: dict[str, Any]) -> None:
    """Colour, grey and CMYK, baseline and progressive: the same pixels whichever library decodes."""
    payload = file_of(picture(mode), "JPEG", **options)
    want = np.asarray(Image.open(io.BytesIO(payload)).convert("RGB"))
    np.testing.assert_array_equal(decode("jpeg", payload), want)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_each_png_is_lossless(mode: str) -> None:
    """Colour, grey, palette and one bit, alpha dropped: the pixels that were saved."""
    want = np.asarray(picture(mode).convert("RGB"))
    if mode in {"RGBA", "LA"}:  # dropped, not blended
        first = np.asarray(picture(mode))[..., :-1]
        want = np.broadcast_to(first, (*first.shape[:2], 3))
    np.testing.assert_array_equal(decode("png", file_of(picture(mode), "PNG")), want)


@pytest.mark.parametrize(
    ("mode", "transparency"), [("P", b"\x00\x01\x02"), ("P", 1), ("L", 7), ("RGB", (1, 2, 3))], ids=str
)
def test_transparency_is_dropped_without_a_warning(mode: str, transparency: Any) -> None:
    """A tRNS chunk changes no pixel (warnings are errors here)."""
    want = np.asarray(picture(mode).convert("RGB"))
    np.testing.assert_array_equal(decode("png", file_of(picture(mode), "PNG", transparency=transparency)), want)


def test_sixteen_bit_grey_keeps_its_upper_byte() -> None:
    """Not clipped to white, as a plain conversion would do."""
    values = np.arange(24, dtype=np.uint16).reshape(SHAPE[1:3]) * 2700
    got = decode("png", file_of(Image.fromarray(values), "PNG"))
    np.testing.assert_array_equal(got, np.repeat((values // 256)[..., np.newaxis], 3, axis=-1))


@pytest.mark.usefixtures("decoder")
@TURBO
def test_orientation_is_not_applied() -> None:
    """EXIF says `rotated`; the pixels are taken as they are stored."""
    exif = Image.Exif()
    exif[0x0112] = 6
    plain, turned = file_of(picture("RGB"), "JPEG"), file_of(picture("RGB"), "JPEG", exif=exif)
    np.testing.assert_array_equal(decode("jpeg", turned), decode("jpeg", plain))


def test_a_png_named_jpeg_is_refused() -> None:
    """The content type is believed only when the first bytes agree."""
    error = refused("jpeg", file_of(picture("RGB"), "PNG"))
    assert error.code is Code.INVALID_ARGUMENT
    assert "not a JPEG: it begins with b'\\x89PNG" in error.message
    assert refused("png", b"").code is Code.INVALID_ARGUMENT


@pytest.mark.usefixtures("decoder")
@TURBO
@pytest.mark.parametrize("name", ["jpeg", "png"])
def test_cut_off_files_are_refused_everywhere(name: str) -> None:
    """Wherever a file is cut, no half picture reaches the model."""
    payload = file_of(picture("RGB"), name.upper())
    for size in range(0, len(payload) - 2, 7):
        assert refused(name, payload[:size]).code is Code.INVALID_ARGUMENT


def claiming(width: int, height: int) -> bytes:
    """Return a small PNG that claims to be large; its checksums are right."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def large_jpeg(width: int, height: int) -> bytes:
    """Return a small JPEG whose frame header claims another size."""
    data = bytearray(file_of(picture("RGB"), "JPEG"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.mark.usefixtures("decoder")
@TURBO
@pytest.mark.parametrize("side", [8193, 30_000, 65_500])
@pytest.mark.parametrize(("name", "make"), [("png", claiming), ("jpeg", large_jpeg)])
def test_a_bomb_is_refused_before_it_is_decoded(name: str, make: Any, side: int) -> None:
    """A file of some hundred bytes that claims gigabytes costs no memory, and the limit is named."""
    tracemalloc.start()
    error = refused(name, make(side, side))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.code is Code.INVALID_ARGUMENT
    assert f"{side} x {side}" in error.message
    assert peak < 5_000_000


def test_a_bundle_without_preprocessing_takes_no_images() -> None:
    """The requester is told what the bundle lacks; it is not its payload that is wrong."""
    signature = Signature((TensorSpec("x", "float32", SHAPE),), (OUTPUT,))
    error = refused("png", file_of(picture("RGB"), "PNG"), signature)
    assert error.code is Code.FAILED_PRECONDITION
    assert "no preprocessing" in error.message


def test_a_model_with_further_inputs_takes_no_images() -> None:
    """One picture cannot fill two inputs, and the input must be the one preprocessing names."""
    x, z = TensorSpec("x", "float32", SHAPE), TensorSpec("z", "float32", (1,))
    for inputs in ((x, z), (z,)):
        signature = Signature(inputs, (OUTPUT,), ImagePreprocess("x", SHAPE[2], SHAPE[1]))
        error = refused("png", file_of(picture("RGB"), "PNG"), signature)
        assert error.code is Code.FAILED_PRECONDITION
        assert "'x' alone" in error.message


def test_preprocessing_that_does_not_fit_the_input_is_said() -> None:
    """A bundle made by hand with the wrong size is the bundle's fault."""
    error = refused("png", file_of(picture("RGB"), "PNG"), image_signature(width=5))
    assert error.code is Code.FAILED_PRECONDITION
    assert "[1, 4, 5, 3]" in error.message


@pytest.mark.usefixtures("decoder")
@TURBO
def test_a_file_larger_than_its_pixels_is_refused() -> None:
    """Bytes are bounded by the size the header claims, and by what else a file carries; a colour profile is fine."""
    for name, at in (("jpeg", 2), ("png", 33)):
        payload = file_of(picture("RGB"), name.upper())
        for count, good in ((10, True), (20, False)):
            filler = b"\xff\xe2\xff\xff" + bytes(65533)
            if name == "png":
                body = b"prVt" + bytes(65533)
                filler = struct.pack(">I", 65533) + body + struct.pack(">I", zlib.crc32(body))
            long = payload[:at] + filler * count + payload[at:]
            if good:
                np.testing.assert_array_equal(decode(name, long), decode(name, payload))
            else:
                assert f"a payload of {len(long)} bytes; an image of" in refused(name, long).message
