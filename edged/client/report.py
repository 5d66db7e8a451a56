"""What `edged infer` prints: the outputs and the timing, for a person or as one JSON document."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from edged.client.payloads import Array
from edged.client.result import Result
from edged.client.untrusted import text, times
from edged.latency import FEW

_SHOWN_VALUES = 8
_SHOWN_FACT = 400
_MAX_DEPTH = 32
_OUTPUT_KEYS = ("outputs", "predictions")


def lines(result: Result, round_trips_ms: Sequence[float]) -> list[str]:
    """The last answer and the timing of all, for a person."""
    cells = [("OUTPUT", "DTYPE", "SHAPE", "VALUES")]
    cells += [(text(name), str(a.dtype), _shape(a), _values(a)) for name, a in result.outputs.items()]
    sizes = [max(len(row[i]) for row in cells) for i in range(3)]
    table = ["  ".join([*(cell.ljust(size) for cell, size in zip(row, sizes, strict=False)), row[3]]) for row in cells]
    facts = [f"{text(name)}: {text(json.dumps(value))[:_SHOWN_FACT]}" for name, value in _beside(result).items()]
    return [*table, *facts, _answered(result), *_repeated(round_trips_ms)]


def document(result: Result, round_trips_ms: Sequence[float]) -> dict[str, Any]:
    """The same for machines; what JSON cannot hold (NaN, infinity) is null, a complex number is [real, imaginary]."""
    outputs = {
        name: {"dtype": str(array.dtype), "shape": list(array.shape), "values": _plain(array)}
        for name, array in result.outputs.items()
    }
    return {
        "outputs": outputs,
        **_beside(result),
        "meta": dataclasses.asdict(result.meta),
        "content_type": result.content_type,
        "round_trip_ms": round(result.round_trip_ms, 3),
        "resends": result.resends,
        "latency": latency(round_trips_ms),
    }


def latency(round_trips_ms: Sequence[float]) -> dict[str, float | int]:
    """n, and P50, P99 (nearest rank) and maximum in milliseconds."""
    ordered = sorted(round_trips_ms)
    p50, p99 = (round(ordered[math.ceil(q * len(ordered)) - 1], 3) for q in (0.5, 0.99))
    return {"n": len(ordered), "p50_ms": p50, "p99_ms": p99, "max_ms": round(ordered[-1], 3)}


def _beside(result: Result) -> dict[str, Any]:
    return {name: _jsonable(value) for name, value in result.document.items() if name not in _OUTPUT_KEYS}


def _jsonable(value: object, depth: int = 0) -> object:
    """The value as JSON can hold it; what it cannot is its text."""
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {str(key): _jsonable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_jsonable(item, depth + 1) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _answered(result: Result) -> str:
    meta = result.meta
    said = [
        f"version {meta.version}" if meta.version is not None else "",
        text(meta.path),
        text(meta.delegate),
        f"queue {meta.queue_us / 1000:.3f} ms" if meta.queue_us is not None else "",
        f"infer {meta.infer_us / 1000:.3f} ms" if meta.infer_us is not None else "",
        f"sent again {times(result.resends)}" if result.resends else "",
    ]
    return f"answered in {result.round_trip_ms:.3f} ms" + "".join(f", {part}" for part in said if part)


def _repeated(round_trips_ms: Sequence[float]) -> list[str]:
    if len(round_trips_ms) == 1:
        return []
    found = latency(round_trips_ms)
    few = f" (fewer than {FEW} samples)" if len(round_trips_ms) < FEW else ""
    return [f"n {found['n']}  P50 {found['p50_ms']} ms  P99 {found['p99_ms']} ms  max {found['max_ms']} ms{few}"]


def _shape(array: Array) -> str:
    return "x".join(map(str, array.shape)) or "scalar"


def _values(array: Array) -> str:
    flat = array.reshape(-1)
    shown = " ".join(f"{value:.6g}" if array.dtype.kind == "f" else text(str(value)) for value in flat[:_SHOWN_VALUES])
    if flat.size <= _SHOWN_VALUES:
        return shown
    spread = f"  min {flat.min():.6g}  max {flat.max():.6g}" if array.dtype.kind in "iuf" else ""
    return f"{shown} … ({flat.size}){spread}"


def _plain(array: Array) -> Any:
    if array.dtype.kind == "c":
        return _plain(np.stack([array.real, array.imag], -1))
    plain = array.astype(object)
    if array.dtype.kind == "f":
        plain[~np.isfinite(array)] = None
    return plain.tolist()
