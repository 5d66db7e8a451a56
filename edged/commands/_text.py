"""Words for tensors, sizes and tables, shared by the commands that print facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from edged.bundle import TensorSpec
from edged.shown import plain


def table(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Lay rows out in columns two spaces apart; each line ends in a newline.

    Cells may come from files of others: control characters (terminal escapes) are left out.
    """
    lines = [[plain(cell) for cell in row] for row in rows]
    count = max(map(len, lines), default=0)
    widths = [max((len(row[i]) for row in lines if i < len(row) - 1), default=0) for i in range(count)]
    return "".join(
        (indent + "  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row))).rstrip() + "\n" for row in lines
    )


def size(count: int) -> str:
    """Return a number of bytes as a person reads it: `812 B`, `64.0 KiB`, `16.0 MiB`."""
    if count < 1024:  # noqa: PLR2004
        return f"{count} B"
    return f"{count / 1024:.1f} KiB" if count < 1024**2 else f"{count / 1024**2:.1f} MiB"


def shape(dims: Sequence[int]) -> str:
    """Return a shape: `1x28x28`, or `scalar`."""
    return "x".join(map(str, dims)) or "scalar"


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
    sent = f"{facts['wire_dtype']} {shape(dims if isinstance(dims, list) else [])}"
    return [kind, f"{facts['name']}: {sent}, {facts['wire_bytes']} bytes raw (in the model {facts['dtype']}{scaled})"]
