"""JPEG and PNG requests: one image in, decoded here, then made into the image input as the bundle's preprocessing says.

Colours: grey, palette and CMYK become RGB; alpha is dropped, not blended (as tf.io.decode_png does for 3 channels); a
16-bit PNG keeps its upper 8 bits. EXIF is not looked at, orientation included: pixels are taken as they are stored, as
tf.io.decode_jpeg does. JPEG is decoded by simplejpeg where it is installed, else by Pillow; both are libjpeg-turbo
with the accurate DCT. Importing this module needs the `image` extra.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np
from PIL import Image, ImageFile, JpegImagePlugin, PngImagePlugin

from edged import preprocess
from edged.bundle import ImagePreprocess, Signature
from edged.codecs.base import NO_ANNOTATIONS, Array
from edged.codecs.common import invalid
from edged.errors import Code, RequestError
from edged.request import Buffer

try:
    import simplejpeg
except ImportError:  # Pillow does it
    simplejpeg = None

# Beyond its pixels a file may carry a colour profile, a thumbnail, a comment.
MAX_METADATA = 1024 * 1024  # bytes
_PIXEL = 8  # bytes of a pixel before compression, at most: four channels of 16 bits
MAX_PIXELS = 64 * 1024 * 1024  # checked before pixels are decoded: a small file can claim any size

# What Pillow's two plug-ins were seen to raise for damaged files.
_PILLOW_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    OverflowError,
    struct.error,
    zlib.error,
)


class _Image:
    """Decodes into the image input; the answer is JSON."""

    name: ClassVar[str]
    content_type: ClassVar[str]
    reply_codec: ClassVar[str] = "json"
    magic: ClassVar[bytes]

    def decode(self, payload: Buffer, signature: Signature, into: Sequence[Array]) -> None:
        """Fill the image input.

        Raises FAILED_PRECONDITION when the bundle has no preprocessing or needs other inputs besides, and
        INVALID_ARGUMENT for another format, damaged or cut off data, and more than `MAX_PIXELS` pixels,
        or more bytes than the pixels the header claims take uncompressed (and `MAX_METADATA`).
        """
        spec = _image_input(signature)
        data = memoryview(payload).cast("B")
        if data[: len(self.magic)] != self.magic:
            raise invalid(f"not a {self.name.upper()}: it begins with {bytes(data[:8])!r}")
        preprocess.write_image(self._pixels(data), spec, into[0])

    def encode(
        self,
        outputs: Sequence[Array],  # noqa: ARG002  # the protocol's
        signature: Signature,  # noqa: ARG002  # the protocol's
        annotations: Mapping[str, object] = NO_ANNOTATIONS,  # noqa: ARG002  # the protocol's
    ) -> NoReturn:
        """Raise UNIMPLEMENTED: outputs are not images; `reply_codec` answers."""
        raise RequestError(Code.UNIMPLEMENTED, f"outputs cannot be answered as {self.name}; ask for {self.reply_codec}")

    def _pixels(self, data: memoryview) -> Array:
        """Return uint8 [h, w, 3], RGB."""
        raise NotImplementedError


class Jpeg(_Image):
    """`image/jpeg`."""

    name: ClassVar[str] = "jpeg"
    content_type: ClassVar[str] = "image/jpeg"
    magic: ClassVar[bytes] = b"\xff\xd8\xff"

    def _pixels(self, data: memoryview) -> Array:
        pixels = _turbo(data) if simplejpeg is not None else None
        return _pillow(JpegImagePlugin.JpegImageFile, data, "JPEG") if pixels is None else pixels


class Png(_Image):
    """`image/png`; of an animation the first picture."""

    name: ClassVar[str] = "png"
    content_type: ClassVar[str] = "image/png"
    magic: ClassVar[bytes] = b"\x89PNG\r\n\x1a\n"
    end: ClassVar[bytes] = b"\0\0\0\0IEND\xaeB`\x82"

    def _pixels(self, data: memoryview) -> Array:
        # Pillow does not mind a missing end, but whoever cut that off may have cut off more.
        if data[-len(self.end) :] != self.end:
            raise invalid("the PNG is cut off, or has bytes after its end")
        return _pillow(PngImagePlugin.PngImageFile, data, "PNG")


def _image_input(signature: Signature) -> ImagePreprocess:
    spec = signature.preprocess
    if spec is None:
        what = "the bundle has no preprocessing, so it takes no images; send tensors, or convert with --preprocess"
        raise RequestError(Code.FAILED_PRECONDITION, what)
    names = [tensor.name for tensor in signature.inputs]
    if names != [spec.input]:
        what = f"an image is input {spec.input!r} alone; the model has {', '.join(map(repr, names))}: send tensors"
        raise RequestError(Code.FAILED_PRECONDITION, what)
    return spec


def _bounded(width: int, height: int, size: int) -> None:
    if width * height > MAX_PIXELS:
        raise invalid(f"an image of {width} x {height} pixels; at most {MAX_PIXELS} are decoded")
    bound = MAX_METADATA + _PIXEL * width * height
    if size > bound:
        raise invalid(f"a payload of {size} bytes; an image of {width} x {height} pixels takes at most {bound}")


def _turbo(data: memoryview) -> Array | None:
    """Return the pixels; None for CMYK, which simplejpeg does not turn into RGB as Pillow does."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
        _bounded(width, height, len(data))
        pixels: Array | None = None if colours in {"CMYK", "YCCK"} else simplejpeg.decode_jpeg(data, "RGB")
    except ValueError as exc:
        raise invalid(f"the JPEG cannot be decoded: {exc}") from exc
    return pixels


def _pillow(kind: type[ImageFile.ImageFile], data: memoryview, name: str) -> Array:
    # The plug-in's class is used by itself: Image.open would try further formats, and warns about sizes we refuse.
    try:
        with kind(io.BytesIO(data)) as image:
            _bounded(*image.size, len(data))
            image.load()
            return _rgb(image)
    except _PILLOW_ERRORS as exc:
        raise invalid(f"the {name} cannot be decoded: {exc}") from exc


def _rgb(image: Image.Image) -> Array:
    image.info.pop("transparency", None)  # else Pillow warns that it will be lost, which is what we want
    if image.mode.startswith("I"):  # 16-bit grey
        upper: np.ndarray[Any, Any] = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(upper[..., np.newaxis], 3, axis=-1)
    return np.asarray(image.convert("RGB"))
