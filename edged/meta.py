"""The `meta` user property of an MQTT 5 reply: a few facts about the answer in one short text.

    v=3;path=local;delegate=cpu;q=120;i=450;o=probabilities:float32:1x6,embedding:int8:1x64

v: model version. path: local, server or cache. q, i: µs in the queue and in the model. o: the outputs of a raw
payload, `name:dtype:shape` each, a scalar with an empty shape. Names are percent-encoded. One property, not five: paho
copies the payload for each. Neither side ever raises: an unknown key is skipped, and a value that cannot be read counts
as not given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class OutputMeta:
    """One output array of a raw payload: name, numpy dtype name, shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Meta:
    """What the daemon says about an answer; None, empty: not said. queue_us, infer_us: microseconds."""

    version: int | None = None
    path: str = ""
    delegate: str = ""
    queue_us: int | None = None
    infer_us: int | None = None
    outputs: tuple[OutputMeta, ...] = ()


@lru_cache(maxsize=64)
def _format_outputs(outputs: tuple[OutputMeta, ...]) -> str:
    # Cached: a model's outputs are the same in each of its replies.
    return ",".join(
        f"{quote(o.name, safe='')}:{quote(o.dtype, safe='')}:{'x'.join(map(str, o.shape))}" for o in outputs
    )


def format_meta(meta: Meta) -> str:
    """Return the property's text, without what is not given."""
    fields: tuple[tuple[str, object], ...] = (
        ("v", meta.version),
        ("path", quote(meta.path, safe="")),
        ("delegate", quote(meta.delegate, safe="")),
        ("q", meta.queue_us),
        ("i", meta.infer_us),
        ("o", _format_outputs(meta.outputs)),
    )
    return ";".join(f"{key}={value}" for key, value in fields if value is not None and value != "")


def parse_meta(text: str) -> Meta:
    """Read the property's text, whatever it holds; the first of a repeated key counts."""
    fields: dict[str, str] = {}
    for part in text.split(";"):
        key, found, value = part.partition("=")
        if found:
            fields.setdefault(key.strip(), value)
    return Meta(
        version=_number(fields.get("v", "")),
        path=unquote(fields.get("path", "")),
        delegate=unquote(fields.get("delegate", "")),
        queue_us=_number(fields.get("q", "")),
        infer_us=_number(fields.get("i", "")),
        outputs=_parse_outputs(fields.get("o", "")),
    )


def _number(text: str) -> int | None:
    """A whole number of at most 18 digits, else None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


@lru_cache(maxsize=64)
def _parse_outputs(text: str) -> tuple[OutputMeta, ...]:
    """All outputs, or none: a payload cannot be split by half a list."""
    parsed = [_parse_output(part) for part in text.split(",")] if text else []
    known = tuple(output for output in parsed if output is not None)
    return known if len(known) == len(parsed) else ()


def _parse_output(text: str) -> OutputMeta | None:
    parts = text.split(":")
    if len(parts) != 3 or not parts[1]:  # noqa: PLR2004 - name, dtype, shape
        return None
    sizes = [_number(size) for size in parts[2].split("x")] if parts[2] else []
    shape = tuple(size for size in sizes if size is not None)
    return OutputMeta(unquote(parts[0]), unquote(parts[1]), shape) if len(shape) == len(sizes) else None
