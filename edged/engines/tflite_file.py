"""What a .tflite file holds, read by ourselves: no runtime and no other package is needed, on a device either.

Nothing of the file is trusted: every offset is checked, and a file that is not what it must be raises ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edged import magics
from edged.engines import tflite_names
from edged.engines.tflite_flatbuffer import Flatbuffer, Table, TooLargeError
from edged.limits import MAX_FILE
from edged.shown import clipped, shape, size

_SCHEMA_VERSION = 3
_ITEMSIZE: Mapping[str, int] = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor. shape: as stored; signature: the same with -1 for open dimensions. scales: empty where not quantized.

    data: its constant bytes, empty for what is computed. axis: of per-channel scales.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    data: bytes = b""
    variable: bool = False


@dataclass(frozen=True)
class Op:
    """An operator: builtin name in capitals (`CONV_2D`) or a custom op's own name; tensor indices, -1 for none.

    activation: the fused activation in capitals (`RELU6`), "" where there is none. once: the number of the graph that
    a CALL_ONCE runs, -1 for every other op.
    """

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    custom: bool = False
    activation: str = ""
    once: int = -1

    @property
    def flex(self) -> bool:
        """Whether it is an op of TensorFlow itself, which needs the Flex delegate."""
        return self.custom and self.name.startswith("Flex")


@dataclass(frozen=True)
class Graph:
    """A subgraph: the main one comes first, the others are bodies of WHILE, IF and CALL_ONCE, or more signatures."""

    name: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class FileSignature:
    """A signature: name → tensor index in `graph` (its number)."""

    key: str
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    graph: int


@dataclass(frozen=True)
class ModelFile:
    """The whole file. min_runtime_version: the metadata's word, which lies for int8; "" where there is none.

    versions: operator → highest version, of all that the file declares: a runtime wants those too that no graph uses.
    """

    graphs: tuple[Graph, ...]
    signatures: tuple[FileSignature, ...]
    min_runtime_version: str = ""
    versions: Mapping[str, int] = field(default_factory=dict)


def content(path: Path) -> bytes:
    """Return the bytes of a model file; neither a large file nor one that never ends is read before it is told.

    Raises ValueError for what is no .tflite by its size, its kind or its first bytes; OSError when it cannot be read.
    """
    if kind := magics.special(path):
        raise ValueError(kind)
    with path.open("rb") as file:
        head, held = file.read(magics.TFLITE_HEAD), path.stat().st_size
        if not head:
            raise ValueError("is empty")
        if not magics.is_tflite(head):
            raise ValueError("is no .tflite: its identifier is missing")
        if held > MAX_FILE:
            told = f"is {size(held)}, more than is read here"
            raise TooLargeError(f"{told}: a .tflite has at most {size(MAX_FILE)}, and buffers behind it in large ones")
        return head + file.read(MAX_FILE)


def read(model: bytes) -> ModelFile:
    """Read a .tflite. Raises ValueError saying what is wrong with it, TooLargeError where that is its size alone."""
    if not magics.is_tflite(model):
        raise ValueError("is no .tflite: its identifier is missing")
    file = Flatbuffer(model)
    root = file.root()
    version = root.number(0, "I", 0)
    if version != _SCHEMA_VERSION:
        raise ValueError(f"is of schema version {version}, not {_SCHEMA_VERSION}")
    buffers = _Buffers(file, root.tables(4))
    codes = [_Code(table) for table in root.tables(1)]
    graphs = tuple(_graph(table, codes, buffers) for table in root.tables(2))
    if not graphs:
        raise ValueError("holds no graph")
    signatures = tuple(_signature(table, graphs) for table in root.tables(7))
    return ModelFile(graphs, signatures, _min_runtime_version(root, buffers), _versions(codes))


class _Buffers:
    """The constants' bytes. What several tensors or buffers share is held once."""

    def __init__(self, file: Flatbuffer, tables: Iterable[Table]) -> None:
        self._file = file
        self._places = [_place(table) for table in tables]
        self._held: dict[tuple[int, int], bytes] = {}
        self._left = 2 * len(file.content)

    def __getitem__(self, index: int) -> bytes:
        if index >= len(self._places):
            raise ValueError(f"is damaged: buffer {index} of {len(self._places)} is asked for")
        place = self._places[index]
        if place not in self._held:
            self._held[place] = self._take(*place)
        return self._held[place]

    def _take(self, at: int, length: int) -> bytes:
        self._left -= length
        if self._left < 0:
            raise ValueError("is damaged: its buffers lie over each other")
        return self._file.take(at, length)


def _place(buffer: Table) -> tuple[int, int]:
    """Where a buffer's bytes stand: in its table, or, in large files, behind the flatbuffer."""
    at, length = buffer.number(1, "Q", 0), buffer.number(2, "Q", 0)
    # 1 stands for an offset that was never filled in.
    return (at, length) if at > 1 else buffer.data(0)


class _Code:
    """An operator code: which operator, and its version."""

    def __init__(self, table: Table) -> None:
        # Numbers beyond 126 are in the newer field alone, and old files have the deprecated one alone.
        number = max(table.number(0, "b", 0), table.number(3, "i", 0))
        if number < 0:
            raise ValueError(f"is damaged: {number} is no operator")
        self.custom = number == tflite_names.CUSTOM
        self.name = table.text(1) if self.custom else tflite_names.operator(number)
        self.version = table.number(2, "i", 1)
        if not self.name:
            raise ValueError("is damaged: a custom operator has no name")


def _versions(codes: Iterable[_Code]) -> dict[str, int]:
    versions: dict[str, int] = {}
    for code in codes:
        versions[code.name] = max(code.version, versions.get(code.name, 0))
    return dict(sorted(versions.items()))


def _graph(table: Table, codes: list[_Code], buffers: _Buffers) -> Graph:
    tensors = tuple(_tensor(t, buffers) for t in table.tables(0))
    return Graph(
        name=table.text(4),
        tensors=tensors,
        ops=tuple(_op(op, codes, len(tensors)) for op in table.tables(3)),
        inputs=_indices(table, 1, len(tensors)),
        outputs=_indices(table, 2, len(tensors)),
    )


def _tensor(table: Table, buffers: _Buffers) -> Tensor:
    if table.number(10, "I", 0):
        raise ValueError("keeps constants in another file")
    dims = tuple(table.numbers(0, "<i4"))
    quantization = table.table(4)
    tensor = Tensor(
        name=table.text(3),
        dtype=tflite_names.tensor_type(table.number(1, "B", 0)),
        shape=dims,
        signature=tuple(table.numbers(7, "<i4")) or dims,
        scales=tuple(quantization.numbers(2, "<f4")) if quantization else (),
        zero_points=tuple(quantization.numbers(3, "<i8")) if quantization else (),
        axis=quantization.number(6, "i", 0) if quantization else 0,
        data=buffers[table.number(2, "I", 0)],
        variable=table.number(5, "B", 0) != 0,
    )
    _check(tensor, sparse=table.has(6))
    return tensor


def _check(tensor: Tensor, *, sparse: bool) -> None:
    """Refuse what no runtime can use, so that who reads a tensor can rely on it."""
    if not all(map(math.isfinite, tensor.scales)):
        raise ValueError(f"is damaged: tensor {clipped(tensor.name)!r} has a scale that is no finite number")
    if tensor.scales and len(tensor.zero_points) not in (1, len(tensor.scales)):
        raise ValueError(f"is damaged: tensor {clipped(tensor.name)!r} has other numbers of scales and zero points")
    item = _ITEMSIZE.get(tensor.dtype, 0)
    if item and tensor.data and not sparse and len(tensor.data) != item * math.prod(tensor.shape):
        what = f"tensor {clipped(tensor.name)!r}, {tensor.dtype} {clipped(shape(tensor.shape))}"
        raise ValueError(f"is damaged: {len(tensor.data)} bytes for {what}")


def _op(table: Table, codes: list[_Code], tensors: int) -> Op:
    index = table.number(0, "I", 0)
    if index >= len(codes):
        raise ValueError(f"is damaged: operator code {index} of {len(codes)} is asked for")
    code = codes[index]
    return Op(
        name=code.name,
        version=code.version,
        inputs=_indices(table, 1, tensors, least=-1),
        outputs=_indices(table, 2, tensors, least=-1),
        custom=code.custom,
        activation=_activation(table),
        once=_once(table),
    )


def _activation(op: Table) -> str:
    slot = tflite_names.ACTIVATION_SLOTS.get(op.number(3, "B", 0))
    options = None if slot is None else op.table(4)
    return "" if slot is None or options is None else tflite_names.activation(options.number(slot, "B", 0))


def _once(op: Table) -> int:
    options = op.table(4) if op.number(3, "B", 0) == tflite_names.CALL_ONCE_OPTIONS else None
    return -1 if options is None else options.number(0, "i", 0)


def _indices(table: Table, slot: int, tensors: int, least: int = 0) -> tuple[int, ...]:
    return tuple(_index(i, tensors, least) for i in table.numbers(slot, "<i4"))


def _index(index: int, tensors: int, least: int = 0) -> int:
    if not least <= index < tensors:
        raise ValueError(f"is damaged: tensor {index} of {tensors} is asked for")
    return index


def _signature(table: Table, graphs: tuple[Graph, ...]) -> FileSignature:
    key, number = table.text(2), table.number(4, "I", 0)
    if number >= len(graphs):
        raise ValueError(f"is damaged: signature {clipped(key)!r} is of graph {number} of {len(graphs)}")
    tensors = len(graphs[number].tensors)
    return FileSignature(key, _names(table, 0, tensors), _names(table, 1, tensors), number)


def _names(signature: Table, slot: int, tensors: int) -> dict[str, int]:
    pairs = [(table.text(0), _index(table.number(1, "I", 0), tensors)) for table in signature.tables(slot)]
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("is damaged: a signature has two tensors of one name")
    return names


def _min_runtime_version(root: Table, buffers: _Buffers) -> str:
    for metadata in root.tables(6):
        if metadata.text(0) == "min_runtime_version":
            return buffers[metadata.number(1, "I", 0)].rstrip(b"\0").decode("ascii", "replace")
    return ""
