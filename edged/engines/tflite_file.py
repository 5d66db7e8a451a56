"""What a .tflite file holds, read by ourselves: no runtime and no other package is needed, on a device either.

Nothing of the file is trusted: every offset is checked, and a file that is not what it must be raises ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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

    activation: the fused activation in capitals (`RELU6`), "" where there is none.
    """

    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    custom: bool = False
    activation: str = ""

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
    """The whole file. min_runtime_version: the metadata's word, which lies for int8; "" where there is none."""

    graphs: tuple[Graph, ...]
    signatures: tuple[FileSignature, ...]
    min_runtime_version: str = ""


def read(model: bytes) -> ModelFile:
    """Read a .tflite. Raises ValueError saying what is wrong with it."""
    raise NotImplementedError
