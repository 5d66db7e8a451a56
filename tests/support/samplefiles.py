"""Model files that were never made, for reports: their ops, and what else is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from converters.truth import Facts
from edged.bundle import TensorSpec
from edged.engines.tflite_nodes import Kind, Node


def node(index: int, op: str, kind: Kind, version: int = 1, *, custom: bool = False) -> Node:
    """One op; its output is called after its place."""
    return Node(index, op, version, kind, custom, f"model/{op.lower()}_{index}")


def facts(nodes: Sequence[Node], *, integer: bool = True, inputs: Sequence[str] = ("x",)) -> Facts:
    """A file of these ops with inputs of 64x6 and an output `y` of 4 scores."""
    dtype: Literal["int8", "float32"] = "int8" if integer else "float32"
    scale = 0.05 if integer else 0.0
    counts = {op: sum(n.op == op for n in nodes) for op in sorted({n.op for n in nodes})}
    return Facts(
        signature="serving_default",
        inputs=tuple(TensorSpec(name, dtype, (1, 64, 6), scale, -3 if integer else 0) for name in inputs),
        outputs=(TensorSpec("y", dtype, (1, 4), 1 / 256 if integer else 0.0, -128 if integer else 0),),
        ops={op: max(n.version for n in nodes if n.op == op) for op in counts},
        dtypes={dtype: (34, 6_337), "int32": (9, 268)},
        integer_share=sum(n.kind in ("int8", "int16") for n in nodes) / len(nodes),
        float_ops=tuple(sorted({n.op for n in nodes if n.kind in ("float", "hybrid")})),
        clamped=(), weightless=False, stateful=False, nodes=tuple(nodes), counts=counts,
        int8_bytes_share=0.96 if integer else 0.0,
    )  # fmt: skip


NET: Sequence[tuple[str, int]] = (
    ("EXPAND_DIMS", 1), ("CONV_2D", 3), ("RESHAPE", 1), ("EXPAND_DIMS", 1), ("MAX_POOL_2D", 2), ("RESHAPE", 1),
    ("EXPAND_DIMS", 1), ("CONV_2D", 3), ("CONV_2D", 3), ("ADD", 2), ("RESHAPE", 1), ("MEAN", 2),
    ("FULLY_CONNECTED", 4), ("FULLY_CONNECTED", 4), ("SOFTMAX", 2),
)  # fmt: skip
SHAPES = ("EXPAND_DIMS", "RESHAPE")


def small_net(kind: Kind = "int8") -> list[Node]:
    """A convolutional net of 15 ops."""
    return [node(i, op, "other" if op in SHAPES else kind, version) for i, (op, version) in enumerate(NET)]
