"""Arrays to request payloads and reply payloads to arrays, as a client does it: without the bundle.

Raw is the fast form: the little-endian bytes of the arrays in the model's order, described in the reply by `meta`.
npy describes itself (one .npy after the other), JSON is TF Serving's. A payload given as bytes is sent as it is.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edged.errors import BadDataError, UsageError
from edged.meta import OutputMeta

Array = npt.NDArray[Any]
# One array (or nested lists), several by input name or in order, or a payload that is encoded already.
Inputs = npt.ArrayLike | Mapping[str, npt.ArrayLike] | bytes | bytearray | memoryview

# Codec name (a level of the 3.1.1 topic) to content type, and to the codec of its answer.
CONTENT_TYPES = {
    "raw": "application/octet-stream",
    "json": "application/json",
    "npy": "application/x-npy",
    "cbor": "application/cbor",
    "jpeg": "image/jpeg",
    "png": "image/png",
}
REPLY_CODECS = {"jpeg": "json", "png": "json"}
_CODECS = {content_type: codec for codec, content_type in CONTENT_TYPES.items()}

# What a payload may be made of: booleans and numbers. Anything else would be object pointers or text.
_KINDS = "biufc"
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
        return CONTENT_TYPES[self.codec]

    def without_payload(self) -> Encoded:
        """The same, its bytes let go."""
        return replace(self, payload=b"")


def codec_of(content_type: str | None, asked: str) -> str:
    """The codec of a reply: told by its content type, else (MQTT 3.1.1) what the request's codec is answered in."""
    return _CODECS.get(content_type or "", REPLY_CODECS.get(asked, asked))


def encode(inputs: Inputs, codec: str) -> Encoded:
    """Make a request payload.

    inputs: bytes go as they are. Arrays of numbers or booleans: one, or a mapping in the order of the model's
    declared inputs (JSON sends the names). Raises UsageError (unknown codec), BadDataError (what cannot be encoded).
    """
    if codec not in CONTENT_TYPES:
        raise UsageError("codec", f"unknown codec {codec!r}", f"one of {', '.join(CONTENT_TYPES)}")
    if isinstance(inputs, bytes | bytearray | memoryview):
        return Encoded(codec, bytes(inputs))
    if codec not in _ENCODERS:
        raise UsageError("codec", f"{codec} takes encoded bytes, not arrays", "raw, npy and json take arrays")
    pairs = inputs.items() if isinstance(inputs, Mapping) else [(_UNNAMED, inputs)]
    arrays = {str(name): _array(name, value) for name, value in pairs}
    return Encoded(codec, _ENCODERS[codec](arrays))


def _array(name: object, value: npt.ArrayLike) -> Array:
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


_ENCODERS = {"raw": _raw, "npy": _npy, "json": _json}


def decode(payload: bytes, codec: str, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    """Read a reply's arrays, by output name; raises ValueError saying what is wrong with it.

    outputs: what `meta` says, nothing over MQTT 3.1.1. Without it a raw payload is one flat uint8 array named "output",
    the arrays of the others are "output_0", "output_1", …, and those of JSON have numpy's default dtypes.
    The arrays are copies: they may be written to.
    """
    if codec == "raw":
        return _split(payload, outputs) if outputs else {"output": np.frombuffer(payload, np.uint8).copy()}
    if codec == "npy":
        return _read_npy(payload, outputs)
    if codec == "json":
        return _read_json(json.loads(payload), outputs)
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
    try:
        dtype = np.dtype(name)
    except TypeError as error:
        msg = f"unknown dtype {name!r}"
        raise ValueError(msg) from error
    if dtype.kind not in _KINDS:
        msg = f"dtype {name!r} is not a number"
        raise ValueError(msg)
    return dtype.newbyteorder("<")


def _read_npy(payload: bytes, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    buffer, arrays = io.BytesIO(payload), []
    while buffer.tell() < len(payload):
        array = np.load(buffer, allow_pickle=False)
        if not isinstance(array, np.ndarray):
            msg = "an archive, not .npy"
            raise TypeError(msg)
        arrays.append(array)
    return dict(zip(_names(outputs, len(arrays)), arrays, strict=True))


def _read_json(document: object, outputs: Sequence[OutputMeta]) -> dict[str, Array]:
    if not isinstance(document, dict) or not ("outputs" in document or "predictions" in document):
        msg = "neither `outputs` nor `predictions` in the reply"
        raise ValueError(msg)
    body = document["outputs"] if "outputs" in document else document["predictions"]
    if isinstance(body, list) and body and all(isinstance(row, dict) for row in body):
        body = {name: [row[name] for row in body] for name in body[0]}
    if not isinstance(body, dict):
        body = {_names(outputs, 1)[0]: body}
    dtypes = {output.name: _wire_dtype(output.dtype) for output in outputs}
    return {name: np.asarray(value, dtypes.get(name)) for name, value in body.items()}


def _names(outputs: Sequence[OutputMeta], count: int) -> list[str]:
    """The outputs' names where as many are known as have come, else numbers."""
    return [output.name for output in outputs] if len(outputs) == count else [f"output_{i}" for i in range(count)]
