"""Words for the tensors of a bundle, shared by the commands that print facts."""

from __future__ import annotations

from collections.abc import Mapping

from edged.bundle import TensorSpec
from edged.shown import clipped, shape


def tensor_facts(spec: TensorSpec) -> dict[str, object]:
    """Return a tensor for JSON; `wire_dtype` and `wire_bytes` are the client's."""
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "scale": spec.scale,
        "zero_point": spec.zero_point,
        "wire_dtype": str(spec.wire_dtype),
        "wire_bytes": spec.wire_bytes,
    }


def tensor_row(kind: str, facts: Mapping[str, object]) -> list[str]:
    """Return the table row of `tensor_facts`."""
    dims = facts["shape"]
    scaled = f", scale {facts['scale']:g}, zero point {facts['zero_point']}" if facts["scale"] else ""
    sent = f"{facts['wire_dtype']} {clipped(shape(dims if isinstance(dims, list) else []))}"
    told = f"{sent}, {facts['wire_bytes']} bytes raw (in the model {facts['dtype']}{scaled})"
    return [kind, f"{clipped(str(facts['name']))}: {told}"]
