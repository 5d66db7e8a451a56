"""Arrays to request payloads and reply payloads to arrays, as a client does it: without the bundle.

npy says its dtype and shape, so the device can refuse what does not fit; JSON (TF Serving's) and CBOR carry names too.
Raw, the little-endian bytes of the arrays in the model's order, says nothing: it is used only when it is asked for.
A payload given as bytes is sent as it is.
Names and content types of the codecs are those of `edged.codecs`.
"""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edged import codecs, npyformat
from edged.client import cbor
from edged.client.untrusted import mapping, parse_object
from edged.errors import BadDataError, UsageError
from edged.meta import OutputMeta

Array = npt.NDArray[Any]
# One array (or nested lists), several by input name or in order, or a payload that is encoded already.
Inputs = npt.ArrayLike | Mapping[str, npt.ArrayLike] | bytes | bytearray | memoryview

# What a payload may be made of: booleans and numbers. Anything else would be object pointers or text.
_KINDS = "biufc"
_DTYPES = {dtype.name: dtype.newbyteorder("<") for dtype in map(np.dtype, "?bhilqBHILQefdFD")}
# The name of an input that was given without one.
_UNNAMED = ""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request's payload and the codec that made it."""

    codec: str
    payload: bytes

    @property
    def content_type(self) -> str:
        """The MIME type of the codec."""
        return codecs.TABLE[self.codec].content_type

    def without_payload(self) -> Encoded:
        """The same, its bytes let go."""
        return replace(self, payload=b"")


def codec_of(content_type: str | None, asked: str) -> str:
    """The codec of a reply: told by its content type, else (MQTT 3.1.1) what the request's codec is answered in."""
    told = codecs.name_for_content_type(content_type) if content_type else None
    # An image is never an answer.
    return told or ("json" if codecs.TABLE[asked].content_type.startswith("image/") else asked)


def encode(inputs: Inputs, codec: str | None) -> Encoded:
    """Make a request payload.

    inputs: bytes go as they are. Arrays of numbers or booleans: one, or a mapping, in the order of the model's declared
    inputs where the codec carries no names (raw, npy). codec: None takes one that says what it carries, see `default`.
    Raises UsageError (unknown codec), BadDataError (what cannot be encoded).
    """
    codec = default(inputs) if codec is None else codec
    if codec not in codecs.NAMES:
        raise UsageError("codec", f"unknown codec {codec!r}", f"one of {', '.join(codecs.NAMES)}")
    if isinstance(inputs, bytes | bytearray | memoryview):
        return Encoded(codec, bytes(inputs))
    if codec not in _ENCODERS:
        raise UsageError("codec", f"{codec} takes encoded bytes, not arrays", f"{', '.join(_ENCODERS)} take arrays")
    pairs = inputs.items() if isinstance(inputs, Mapping) else [(_UNNAMED, inputs)]
    arrays = {str(name): as_array(name, value) for name, value in pairs}
    return Encoded(codec, _ENCODERS[codec](arrays))


def default(inputs: Inputs) -> str:
    """Return the codec for inputs that name none: raw for bytes, npy for one array.

    Several arrays go by name: in CBOR where cbor2 is installed (here, and so most likely on the device, which needs it
    to read them), else in JSON, which every device reads.
    """
    if isinstance(inputs, bytes | bytearray | memoryview):
        return "raw"
    if not isinstance(inputs, Mapping) or len(inputs) == 1:
        return "npy"
    return "cbor" if importlib.util.find_spec("cbor2") is not None else "json"


def as_array(name: object, value: npt.ArrayLike) -> Array:
    """Return numbers or booleans as a contiguous, little-endian array, the same one if it is so already.

    Raises BadDataError.
    """
    where = f"input {name}" if name else "input"
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise BadDataError(where, f"not an array: {error}") from error
    if array.dtype.kind not in _KINDS:
        raise BadDataError(where, f"dtype {array.dtype} cannot be sent", "booleans and numbers can")
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)


def _raw(arrays: Mapping[str, Array]) -> bytes:
    return b"".join(array.tobytes() for array in arrays.values())


def _npy(arrays: Mapping[str, Array]) -> bytes:
    buffer = io.BytesIO()
    for array in arrays.values():
        np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _json(arrays: Mapping[str, Array]) -> bytes:
    lists = {name: array.tolist() for name, array in arrays.items()}
    inputs = lists[_UNNAMED] if lists.keys() == {_UNNAMED} else lists
    try:
        return json.dumps({"inputs": inputs}, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise BadDataError("input", "JSON has no NaN, no infinity and no complex numbers", "use raw or npy") from error


def _cbor(arrays: Mapping[str, Array]) -> bytes:
    if _UNNAMED in arrays:
        raise UsageError("codec", "cbor sends arrays by name", "give a mapping, or send npy")
    try:
        return cbor.write(arrays)
    except ValueError as error:
        raise BadDataError("input", str(error), "send it as npy") from error


_ENCODERS = {"npy": _npy, "json": _json, "cbor": _cbor, "raw": _raw}


def decode(payload: bytes, codec: str, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    """Read a reply's arrays, by output name; raises ValueError saying what is wrong with it.

    outputs: what `meta` says, nothing over MQTT 3.1.1. Without it a raw payload is one flat uint8 array named "output",
    the arrays of npy are "output_0", "output_1", …, and those of JSON have numpy's default dtypes. CBOR says it all.
    The arrays are copies: they may be written to.
    """
    if codec == "raw":
        return _split(payload, outputs) if outputs else {"output": np.frombuffer(payload, np.uint8).copy()}
    if codec == "npy":
        return _read_npy(payload, outputs)
    if codec == "json":
        return _read_json(payload, outputs)
    if codec == "cbor":
        return _read_cbor(payload, outputs)
    msg = f"a reply in {codec} is not read here; take Result.payload"
    raise ValueError(msg)


def _split(payload: bytes, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    arrays, offset = {}, 0
    for output in outputs:
        dtype = _wire_dtype(output.dtype)
        end = offset + output.elements * dtype.itemsize
        if end > len(payload):
            msg = f"output {output.name} needs bytes {offset} to {end}, the payload has {len(payload)}"
            raise ValueError(msg)
        arrays[output.name] = np.frombuffer(payload[offset:end], dtype).reshape(output.shape).copy()
        offset = end
    if offset != len(payload):
        msg = f"{len(payload) - offset} bytes more than the outputs need"
        raise ValueError(msg)
    return arrays


def _wire_dtype(name: str) -> np.dtype[Any]:
    if name not in _DTYPES:
        msg = f"{name[:40]!r} is not a dtype of numbers"
        raise ValueError(msg)
    return _DTYPES[name]


def _read_npy(payload: bytes, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    rest, arrays = memoryview(payload), []
    while rest:
        array, rest = npyformat.read_array(rest)
        arrays.append(array.copy())
    return dict(zip(_names(outputs, len(arrays)), arrays, strict=True))


def _read_json(payload: bytes, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    document = parse_object(payload)
    body = document.get("outputs", document.get("predictions")) if document is not None else None
    if body is None:
        msg = "not a JSON object with `outputs` or `predictions`"
        raise ValueError(msg)
    if not isinstance(body, dict):
        body = _columns(body) or {_names(outputs, 1)[0]: body}
    dtypes = {output.name: _wire_dtype(output.dtype) for output in outputs}
    return {name: _json_array(name, value, dtypes.get(name)) for name, value in body.items()}


def _read_cbor(payload: bytes, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    body = mapping(cbor.read(payload).get("outputs"))
    if not body:
        msg = "not a CBOR map with `outputs`"
        raise ValueError(msg)
    dtypes = {output.name: _wire_dtype(output.dtype) for output in outputs}
    return {
        name: value if isinstance(value, np.ndarray) else _json_array(name, value, dtypes.get(name))
        for name, value in body.items()
    }


def _columns(rows: object) -> dict[str, list[Any]] | None:
    """Turn rows that are objects into columns by name; None when they are not."""
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        return None
    if any(row.keys() != rows[0].keys() for row in rows):
        msg = "the rows of `predictions` name different outputs"
        raise ValueError(msg)
    return {name: [row[name] for row in rows] for name in rows[0]}


def _json_array(name: str, value: object, dtype: np.dtype[Any] | None) -> Array:
    try:
        array = np.asarray(value, dtype)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if array.dtype.kind not in _KINDS:
        msg = f"output {name} is not made of numbers"
        raise ValueError(msg)
    return array


def _names(outputs: Sequence[OutputMeta], count: int) -> list[str]:
    """The outputs' names where as many are known as have come, else numbers."""
    return [output.name for output in outputs] if len(outputs) == count else [f"output_{i}" for i in range(count)]
