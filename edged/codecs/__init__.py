"""The table of codecs: a name, where its class is, its content type. A codec is imported when it is first asked for."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import NamedTuple, cast

from edged.bundle import Signature
from edged.codecs.base import Codec
from edged.errors import Code, RequestError


class Row(NamedTuple):
    """Where a codec is: "module:Class", its content type, and the extra that installs what it needs."""

    target: str
    content_type: str
    extra: str = ""


TABLE = {
    "raw": Row("edged.codecs.raw:Raw", "application/octet-stream"),
    "json": Row("edged.codecs.json_codec:Json", "application/json"),
    "npy": Row("edged.codecs.npy:Npy", "application/x-npy"),
    "jpeg": Row("edged.codecs.image:Jpeg", "image/jpeg", "image"),
    "png": Row("edged.codecs.image:Png", "image/png", "image"),
    "cbor": Row("edged.codecs.cbor:Cbor", "application/cbor", "cbor"),
}
NAMES = tuple(TABLE)
DEFAULT = "raw"
_BY_CONTENT_TYPE = {row.content_type: name for name, row in TABLE.items()}


def load(name: str) -> Codec:
    """Return the codec of this name, always the same object.

    Raises RequestError(UNIMPLEMENTED) for an unknown name, and for a codec whose packages are not installed; that stays
    so until the process starts again, since a failing import searches every path and would do so at each request.
    """
    if name not in TABLE:
        raise RequestError(Code.UNIMPLEMENTED, f"no codec {name[:40]!r}; there are {', '.join(NAMES)}")
    found = _imported(name)
    if isinstance(found, str):
        raise RequestError(Code.UNIMPLEMENTED, found)
    return found


@functools.cache
def _imported(name: str) -> Codec | str:
    """Return the codec, or what is missing for it; one of the table's names, so that there are few."""
    row = TABLE[name]
    module, _, attribute = row.target.partition(":")
    try:
        return cast(Codec, getattr(importlib.import_module(module), attribute)())
    except ImportError as exc:
        if not row.extra:
            raise
        return f"codec {name!r} is not installed on this device: pip install 'edged[{row.extra}]' ({exc})"


def preload(signature: Signature) -> None:
    """Import the codecs this model may be asked for, so that no request pays for it.

    Images only where the bundle has preprocessing; CBOR never, which would cost every daemon a megabyte for the few
    that are asked for it. Codecs whose packages are missing are remembered as such.
    """
    images = () if signature.preprocess is None else ("jpeg", "png")
    for name in ("raw", "json", "npy", *images):
        with contextlib.suppress(RequestError):
            load(name)


def name_for_content_type(content_type: str | None) -> str | None:
    """Return the codec for an MQTT 5 Content Type, `DEFAULT` when there is none, None when no codec has it.

    Parameters (`; charset=utf-8`) are ignored and case does not matter, as in RFC 9110, section 8.3.1.
    """
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return _BY_CONTENT_TYPE.get(media_type) if media_type else DEFAULT
