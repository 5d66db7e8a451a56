"""The flatbuffer classes of the TFLite file format, which come inside the ai-edge-litert wheel."""

from __future__ import annotations

from typing import Any

from edged.errors import UnavailableError


def load() -> Any:
    """Return the module of generated classes; it is pure Python and loads no runtime. Raises UnavailableError."""
    try:
        from ai_edge_litert import schema_py_generated  # noqa: PLC0415  # large, and only a converter reads files
    except ImportError as exc:
        raise UnavailableError(
            "converters", "nothing here can read a TFLite file", "pip install ai-edge-litert"
        ) from exc
    return schema_py_generated
