"""The report as plain JSON: the same fields as `converters.report`, and the verdict that they add up to."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from converters.gates import Gate
from converters.report import Report

FORMAT = 1
_TIME = "_us"


def document(report: Report, *, timings: bool) -> dict[str, Any]:
    """Return the report as values that `json.dumps` takes, in an order that is the same from run to run.

    timings False leaves out every field whose name ends in `_us`. What JSON cannot hold (NaN, Infinity) is text.
    Raises TypeError for a value that is none of JSON's.
    """
    content = _fields(report, timings=timings)
    return {"format": FORMAT, "ships": report.ships, "shown": report.shown.quantize, **content}


def _fields(item: Any, *, timings: bool) -> dict[str, Any]:
    fields = {
        field.name: _plain(getattr(item, field.name), timings=timings)
        for field in dataclasses.fields(item)
        if timings or not field.name.endswith(_TIME)
    }
    return fields | {"passed": bool(item.passed)} if isinstance(item, Gate) else fields


def _plain(value: Any, *, timings: bool) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if dataclasses.is_dataclass(value):
        return _fields(value, timings=timings)
    if isinstance(value, Mapping):
        kept = ((str(key), value[key]) for key in sorted(value, key=str))
        return {key: _plain(item, timings=timings) for key, item in kept if timings or not key.endswith(_TIME)}
    if isinstance(value, list | tuple):
        return [_plain(item, timings=timings) for item in value]
    return _number(value)


def _number(value: Any) -> int | float | str:
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        found = float(value)
        return found if math.isfinite(found) else {"inf": "Infinity", "-inf": "-Infinity"}.get(str(found), "NaN")
    raise TypeError(f"a report holds plain values, not {type(value).__name__}")
