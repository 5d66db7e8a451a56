"""A fixed size for every dimension that a signature leaves open, and the reason for each, for the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from converters.report import Pinned
from edged.checks import hint
from edged.errors import BadDataError, UsageError
from edged.manifest import MAX_ELEMENTS

# None: a dimension of any size, or, for a whole shape, any number of dimensions.
Dims = tuple["int | None", ...]

# XNNPACK takes no node of some graphs with open sizes; lists in recurrent layers reserve space for a known batch.
_BATCH = "recurrent layers and some delegates need fixed sizes"
_GIVEN = "given by --shape: some delegates need fixed sizes"
_EXAMPLE = 64


class Asked(NamedTuple):
    """The flags: --batch, --shape (input → full shape), --dynamic-batch."""

    batch: int = 1
    given: Mapping[str, tuple[int, ...]] = {}
    dynamic: bool = False


@dataclass(frozen=True)
class Shapes:
    """fed: input → the shape of one sample, batch included. traced: the same with None for a batch that stays open.

    batch_of_one: whether every batch that was open is now fixed at 1.
    """

    fed: Mapping[str, tuple[int, ...]]
    traced: Mapping[str, Dims]
    pinned: tuple[Pinned, ...]
    batch_of_one: bool


def pin(dims: Mapping[str, Dims | None], asked: Asked, where: str) -> Shapes:
    """Return a full shape for every input: the given ones, else with the first open dimension as the batch.

    Raises UsageError for a shape that contradicts the model, names no input, is missing or is larger than a bundle can
    carry, and for a flag that changes nothing; BadDataError for an input that holds no value.
    """
    _check(dims, asked)
    batched = [name for name, known in dims.items() if _has_batch(known)]
    fed = {name: _full(name, known, asked, where) for name, known in dims.items()}
    for name, shape in fed.items():
        _check_size(name, shape, asked, where)
    open_ = frozenset(batched) if asked.dynamic else frozenset()
    traced: dict[str, Dims] = {name: (None, *shape[1:]) if name in open_ else shape for name, shape in fed.items()}
    pinned = [found for name, known in dims.items() for found in _pinned(name, known, traced[name], asked)]
    ones = bool(batched) and all(traced[name][:1] == (1,) for name in batched)
    return Shapes(fed, traced, tuple(pinned), ones)


def _check(dims: Mapping[str, Dims | None], asked: Asked) -> None:
    for name in asked.given:
        if name not in dims:
            raise UsageError("--shape", f"no input {name!r}{hint(name, dims)}; it has: {', '.join(dims)}")
    flag = "--dynamic-batch" if asked.dynamic else "--batch"
    if (asked.dynamic or asked.batch != 1) and not any(_has_batch(known) for known in dims.values()):
        raise UsageError(flag, f"no input has an open first dimension: {_listed(dims)}")
    if asked.dynamic:
        _check_dynamic(dims, asked)


def _check_dynamic(dims: Mapping[str, Dims | None], asked: Asked) -> None:
    if asked.batch != 1:
        raise UsageError("--dynamic-batch", f"leaves open what --batch {asked.batch} fixes", "give one of them")
    for name, shape in asked.given.items():
        if _has_batch(dims[name]) and shape[:1] != (1,):
            what = f"leaves open the batch that --shape {name}={_comma(shape)} fixes"
            raise UsageError("--dynamic-batch", what, f"--shape {name}={_comma((1, *shape[1:]))}")


def _has_batch(known: Dims | None) -> bool:
    return known is None or (len(known) > 0 and known[0] is None)


def _full(name: str, known: Dims | None, asked: Asked, where: str) -> tuple[int, ...]:
    given = asked.given.get(name)
    if given is not None:
        if known is not None and not _fits(known, given):
            raise UsageError("--shape", f"{name}={list(given)} does not fit the model's {_text(known)}")
        return given
    if known is not None:
        full = tuple(asked.batch if i == 0 and size is None else size for i, size in enumerate(known))
        if all(size is not None for size in full):
            return tuple(int(size) for size in full if size is not None)
    example = "1,…" if known is None else _comma([s or (_EXAMPLE if i else asked.batch) for i, s in enumerate(known)])
    raise UsageError(where, f"input {name!r} has the open shape {_text(known)}", f"--shape {name}={example}")


def _check_size(name: str, shape: tuple[int, ...], asked: Asked, where: str) -> None:
    elements = math.prod(shape)
    if elements == 0:
        raise BadDataError(where, f"input {name!r} of shape {list(shape)} holds no value", "leave it out of the model")
    if elements > MAX_ELEMENTS:
        flag = "--shape" if name in asked.given else "--batch" if asked.batch != 1 else where
        what = (
            f"input {name!r} would have {elements:,} values ({_comma(shape)}), at most {MAX_ELEMENTS:,} can be carried"
        )
        raise UsageError(flag, what)


def _fits(known: Dims, given: tuple[int, ...]) -> bool:
    return len(known) == len(given) and all(a in (None, b) for a, b in zip(known, given, strict=True))


def _pinned(name: str, known: Dims | None, traced: Dims, asked: Asked) -> list[Pinned]:
    reason = _GIVEN if name in asked.given else f"batch of {asked.batch}: {_BATCH}"
    return [
        Pinned(name, i, size, reason)
        for i, size in enumerate(traced)
        if size is not None and (known is None or known[i] is None)
    ]


def _comma(sizes: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, sizes))


def _text(known: Dims | None) -> str:
    return "[…]" if known is None else "[" + ", ".join("?" if size is None else str(size) for size in known) + "]"


def _listed(dims: Mapping[str, Dims | None]) -> str:
    return ", ".join(f"{name} {_text(known)}" for name, known in dims.items())
