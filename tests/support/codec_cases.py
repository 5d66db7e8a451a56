"""What the codec suites share: signatures, and for each format requests and replies made without our code."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cbor2
import numpy as np
import numpy.typing as npt
from PIL import Image

from edged.bundle import ImagePreprocess, Signature, TensorSpec

Array = npt.NDArray[Any]
Named = Mapping[str, Array]

SHAPE = (1, 4, 6, 3)
OUTPUT = TensorSpec("y", "float32", (1, 2))


def tensor(name: str, array: Array) -> TensorSpec:
    """Describe an array as the client's own dtype."""
    return TensorSpec(name, array.dtype.name, array.shape)


def signature_for(inputs: Named, **more: Any) -> Signature:
    """Return a signature whose inputs and outputs are these arrays."""
    specs = tuple(tensor(name, array) for name, array in inputs.items())
    return Signature(specs, specs, **more)


def empty_inputs(signature: Signature) -> list[Array]:
    """Return input arrays filled with a value that no test sends."""
    arrays = [np.empty(spec.shape, spec.wire_dtype) for spec in signature.inputs]
    for array in arrays:
        array.reshape(-1).view(np.uint8).fill(0x5A if array.dtype.kind != "b" else 1)
    return arrays


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays are equal bit for bit, in dtype and shape too."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def npy_bytes(array: Array) -> bytes:
    """What np.save writes."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def image_bytes(named: Named, kind: str) -> bytes:
    """One RGB picture, the first of the batch, written by Pillow."""
    out = io.BytesIO()
    Image.fromarray(named["x"][0].astype(np.uint8)).save(out, kind)
    return out.getvalue()


def typed_array(array: Array) -> cbor2.CBORTag:
    """RFC 8746: tag number 0b010_f_s_e_ll, written here from section 2.1."""
    size = array.dtype.itemsize
    kind = {"u": 0b01000000, "i": 0b01001000, "f": 0b01010000}[array.dtype.kind]
    length = {1: 0, 2: 1, 4: 2, 8: 3}[size] - (array.dtype.kind == "f")
    little = 0b100 if size > 1 else 0
    return cbor2.CBORTag(kind | little | length, array.astype(array.dtype.newbyteorder("<")).tobytes())


def from_typed(tag: cbor2.CBORTag) -> Array:
    """Read back tag 40 around a typed array, by struct."""
    assert tag.tag == 40
    shape, inner = tag.value
    codes = {64: "B", 69: "H", 70: "I", 71: "Q", 72: "b", 77: "h", 78: "i", 79: "q", 84: "e", 85: "f", 86: "d"}
    code = codes[inner.tag]
    values = struct.unpack(f"<{len(inner.value) // struct.calcsize(code)}{code}", inner.value)
    return np.array(values, code).reshape(shape)


def cbor_tensor(array: Array) -> object:
    """Tag 40 around a typed array; nested lists for bools."""
    return array.tolist() if array.dtype == np.bool_ else cbor2.CBORTag(40, [list(array.shape), typed_array(array)])


@dataclass(frozen=True)
class Case:
    """One codec's independent counterpart. `reply` is None where it answers in another codec.

    dtypes: what it carries without loss. lossy: `expected` reads the request as another library does.
    """

    request: Callable[[Named], bytes]
    reply: Callable[[bytes, Signature], Sequence[Array]] | None
    dtypes: tuple[str, ...] = ("float32", "float16", "int8", "uint8", "int32", "int64", "bool")
    expected: Callable[[bytes], Array] | None = None
    round_trip: bool = False

    @property
    def is_image(self) -> bool:
        """Whether it carries one picture rather than tensors."""
        return self.reply is None


def _read_raw(payload: bytes, signature: Signature) -> list[Array]:
    arrays, offset = [], 0
    for spec in signature.outputs:
        dtype = np.dtype(spec.dtype).newbyteorder("<")
        arrays.append(np.frombuffer(payload, dtype, spec.elements, offset).reshape(spec.shape).astype(spec.dtype))
        offset += spec.elements * dtype.itemsize
    assert offset == len(payload)
    return arrays


def _read_json(payload: bytes, signature: Signature) -> list[Array]:
    rows = json.loads(payload)["predictions"]
    names = [spec.name for spec in signature.outputs]
    columns = [rows] if len(names) == 1 else [[row[name] for row in rows] for name in names]
    return [np.array(column, spec.dtype) for column, spec in zip(columns, signature.outputs, strict=True)]


def _read_npy(payload: bytes, signature: Signature) -> list[Array]:
    stream = io.BytesIO(payload)
    arrays = [np.load(stream, allow_pickle=False) for _ in signature.outputs]
    assert not stream.read()
    return arrays


def _read_cbor(payload: bytes, signature: Signature) -> list[Array]:
    named = cbor2.loads(payload)["outputs"]
    values = [named[spec.name] for spec in signature.outputs]
    return [from_typed(value) if isinstance(value, cbor2.CBORTag) else np.array(value) for value in values]


def _decoded(payload: bytes) -> Array:
    return np.asarray(Image.open(io.BytesIO(payload)).convert("RGB"))[np.newaxis]


CASES = {
    "raw": Case(
        lambda named: b"".join(a.astype(a.dtype.newbyteorder("<")).tobytes() for a in named.values()),
        _read_raw,
        round_trip=True,
    ),
    "json": Case(
        lambda named: json.dumps({"inputs": {name: a.tolist() for name, a in named.items()}}).encode(), _read_json
    ),
    "npy": Case(lambda named: b"".join(map(npy_bytes, named.values())), _read_npy, round_trip=True),
    "cbor": Case(
        lambda named: cbor2.dumps({"inputs": {name: cbor_tensor(a) for name, a in named.items()}}), _read_cbor
    ),
    "png": Case(lambda named: image_bytes(named, "PNG"), None, ("uint8", "float32"), _decoded),
    "jpeg": Case(lambda named: image_bytes(named, "JPEG"), None, ("uint8", "float32"), _decoded),
}


def image_signature(dtype: str = "float32", **spec: Any) -> Signature:
    """A model that takes one picture of `SHAPE`, pixels as they are unless `spec` says otherwise."""
    wanted: dict[str, Any] = {"input": "x", "width": SHAPE[2], "height": SHAPE[1]} | spec
    return Signature((TensorSpec("x", dtype, SHAPE),), (OUTPUT,), ImagePreprocess(**wanted))
