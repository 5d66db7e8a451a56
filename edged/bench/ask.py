"""What is asked: a file's content, or random values of a shape or a size, always the same for the same seed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from edged.bench.target import Question, Target
from edged.client import inputfile, payloads
from edged.client.payloads import Array, Encoded
from edged.client.untrusted import text
from edged.errors import BadDataError, UnavailableError, UsageError
from edged.shown import listed

_DTYPE = re.compile(r"bool|(u?int|float)(8|16|32|64)")
# What a request may hold at most; a broker takes 256 MiB.
_MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class Wish:
    """What the command line asks for. sizes: of raw payloads, in bytes. shapes: by input name, "" for one of no name.

    With neither file, sizes nor shapes the target says what its model takes.
    """

    models: Sequence[str]
    qos: Sequence[int]
    deadline_ms: int
    file: str | None = None
    codec: str | None = None
    dtype: str | None = None
    sizes: Sequence[int] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    seed: int = 0

    @property
    def declared(self) -> bool:
        """Whether the target must say what its models take."""
        return not (self.file or self.sizes or self.shapes)


def questions(wish: Wish, target: Target) -> list[Question]:
    """Return every model with every payload and every QoS. Raises UsageError, BadDataError, UnavailableError."""
    return [
        Question(model, encoded, qos, wish.deadline_ms)
        for model in wish.models
        for encoded in _payloads(wish, target, model)
        for qos in wish.qos
    ]


def _payloads(wish: Wish, target: Target, model: str) -> Iterator[Encoded]:
    random = np.random.default_rng(wish.seed)
    if wish.file is not None:
        inputs, codec = inputfile.load(wish.file, wish.codec, wish.dtype)
        yield payloads.encode(inputs, codec or "raw")
    elif wish.sizes:
        yield from (Encoded(wish.codec or "raw", random.bytes(amount)) for amount in wish.sizes)
    elif wish.shapes:
        dtype = _dtype(wish.dtype or "float32")
        arrays = {name: _values(random, dtype, shape) for name, shape in wish.shapes.items()}
        yield payloads.encode(arrays.get("", arrays) if len(arrays) == 1 else arrays, wish.codec or "raw")
    else:
        yield payloads.encode(_declared(target, model, random), wish.codec or "raw")


def _declared(target: Target, model: str, random: np.random.Generator) -> dict[str, Array]:
    """Return random arrays for the inputs that the target's status declares."""
    facts, told = target.facts(), target.model(model).get("inputs")
    if "state" not in facts:
        raise UnavailableError(target.where, "has told no state", "is it running? is the name right?")
    if model not in facts["models"]:
        raise UnavailableError(target.where, f"has no model {model!r}", f"it has {listed(facts['models']) or 'none'}")
    if not isinstance(told, list) or not told:
        hint = "name a file with --input, or a shape or --payload"
        raise UnavailableError(target.where, f"does not say what the model {model} takes", hint)
    try:
        return {text(one["name"]): _values(random, _dtype(one["dtype"]), _shape(one["shape"])) for one in told}
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise BadDataError(target.where, f"what it says of the inputs of {model} makes no sense: {error}") from error


def _shape(dims: Any) -> tuple[int, ...]:
    if not all(type(dim) is int and dim > 0 for dim in dims):
        raise ValueError(f"shape {dims!r}")
    return tuple(dims)


def _dtype(name: Any) -> np.dtype[Any]:
    if not isinstance(name, str) or not _DTYPE.fullmatch(name) or name == "float8":
        raise UsageError("--dtype", f"{name!r} is not a dtype of numbers", "for example float32, int8 or bool")
    return np.dtype(name)


def _values(random: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return values as a sensor could send them: floats about 0, whole numbers over all their range."""
    if np.prod(shape, dtype=object) * dtype.itemsize > _MAX_BYTES:
        raise UsageError("--shape", f"a request of that size ({'x'.join(map(str, shape))}) cannot be sent")
    if dtype.kind == "f":
        return random.standard_normal(shape, np.float32).astype(dtype)
    if dtype.kind == "b":
        return random.random(shape) < 0.5  # noqa: PLR2004
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
