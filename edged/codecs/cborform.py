"""The one form a CBOR request may have, read head by head (RFC 8949, section 3), so that no library sees anything else.

A general decoder is a risk in front of strangers: a few bytes of tag 4, 30 or 35, a bignum or a map of colliding keys
hold it for seconds. So maps, keys, tags and typed arrays are read here: two maps, the inputs' names as keys, tag 40 and
the typed arrays of RFC 8746; the work is that of the declared inputs, and a typed array costs no copy. Only nested
arrays go to cbor2, and only after every byte of them was found to be the head of an array, a number, a boolean or null.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import cbor2
import numpy as np

from edged.bundle import Signature
from edged.codecs import common
from edged.codecs.common import describe, input_names, invalid

MULTI_DIMENSIONAL = 40
TYPED_ARRAYS = {
    64: "|u1", 65: ">u2", 66: ">u4", 67: ">u8", 69: "<u2", 70: "<u4", 71: "<u8",
    72: "|i1", 73: ">i2", 74: ">i4", 75: ">i8", 77: "<i2", 78: "<i4", 79: "<i8",
    80: ">f2", 81: ">f4", 82: ">f8", 84: "<f2", 85: "<f4", 86: "<f8",
}  # fmt: skip

FORM = 'expected a map {"inputs": {name: tensor}}'
_UNSIGNED, _BYTES, _TEXT, _ARRAY, _MAP, _TAG = 0, 2, 3, 4, 5, 6
_MAJORS = ("an integer", "a negative integer", "a byte string", "a text", "an array", "a map", "tag", "a simple value")
_INDEFINITE, _BREAK = 31, 0xFF
_MAX_DIMENSIONS = 32  # numpy's

# Heads of arrays, integers, floats, booleans, null and undefined, with the bytes that belong to them, and the break.
_AT_ONCE = 512  # heads; the regular expression keeps a state for each until it is done
_SPARE = 4  # so many times as many heads too many are still read, for an error that can name the shape
_PLAIN = re.compile(
    rb"(?:[\x00-\x17\x20-\x37\x80-\x97\x9f\xf4-\xf7\xff]|\xfb.{8}|\xfa.{4}|[\x18\x38\x98].|[\x19\x39\x99\xf9].."
    rb"|[\x1a\x3a\x9a].{4}|[\x1b\x3b\x9b].{8}){1,%d}" % _AT_ONCE,
    re.DOTALL,
)
_PAIR, _EMPTY_TEXT = b"\x82", b"\x60"
_CBOR2_ERRORS = (cbor2.CBORDecodeError, ValueError, EOFError, RecursionError)


class Typed(NamedTuple):
    """A typed array: a view of its bytes, their dtype, and the dimensions of tag 40 around it, if there was one."""

    data: memoryview
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None


def read(payload: memoryview, signature: Signature) -> dict[str, object]:
    """Return each input's tensor by name: `Typed`, or nested lists of numbers and booleans (not checked further).

    payload: bytes, one dimension. Raises INVALID_ARGUMENT for anything else, as soon as it is met.
    """
    reader = _Reader(payload)
    if reader.open_map() not in (1, None) or reader.text() != "inputs":
        raise invalid(FORM)
    left, found, specs = reader.open_map(), dict[str, object](), {spec.name: spec for spec in signature.inputs}
    while reader.more(left, len(found)):
        name = reader.text()
        if name not in specs:
            raise invalid(f"inputs: {describe(name)} is unknown; {input_names(signature)}")
        if name in found:
            raise invalid(f"inputs: {name!r} is given twice")
        found[name] = reader.tensor(f"input {name!r}", common.items(specs[name]))
    if reader.at != reader.end:
        raise invalid("bytes left over after the CBOR item")
    return found


class _Reader:
    """A place in the payload. `end` is where it ends without the breaks of the maps that were opened."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at, self.end = data, 0, len(data)

    def head(self) -> tuple[int, int | None]:
        """Return major type and argument; None for an indefinite length."""
        start = self.at
        major, info = divmod(self.take(1)[0], 32)
        if info < 24:  # noqa: PLR2004  # section 3: the argument itself
            return major, info
        if info < 28:  # noqa: PLR2004  # section 3: 1, 2, 4 or 8 bytes follow
            return major, int.from_bytes(self.take(1 << info - 24), "big")
        if info == _INDEFINITE and _BYTES <= major <= _MAP:
            return major, None
        raise invalid(f"not valid CBOR: byte {self.data[start]:#04x} at {start}")

    def take(self, size: int) -> memoryview:
        if size > self.end - self.at:
            raise invalid(f"not valid CBOR: cut off at byte {self.end}")
        self.at += size
        return self.data[self.at - size : self.at]

    def open_map(self) -> int | None:
        """Return how many pairs the map has; None for an indefinite one, whose break must be the payload's last byte.

        Both maps end where the payload ends, so that break need not be looked for among those of nested arrays.
        """
        major, count = self.head()
        if major != _MAP:
            raise invalid(FORM)
        if count is None:
            self.end -= 1
            if self.end < self.at or self.data[self.end] != _BREAK:
                raise invalid("not valid CBOR: a map without its end")
        return count

    def more(self, count: int | None, done: int) -> bool:
        return self.at < self.end if count is None else done < count

    def text(self) -> str:
        """Return the map's next key."""
        major, size = self.head()
        if major != _TEXT or size is None:
            raise invalid(f"{FORM}; a key is {_name(major, size)}")
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as exc:
            raise invalid(f"not valid CBOR: {exc}") from exc

    def tensor(self, where: str, items: int) -> object:
        start = self.at
        major, argument = self.head()
        if major != _TAG:
            self.at = start
            return self.nested(where, items)
        if argument == MULTI_DIMENSIONAL:
            return self.multi_dimensional(where)
        self.at = start
        return self.typed(where, None)

    def multi_dimensional(self, where: str) -> Typed:
        """Read what follows tag 40: [dimensions, typed array], either array of definite or indefinite length."""
        major, pair = self.head()
        if major != _ARRAY or pair not in (2, None):
            raise invalid(f"{where}: tag 40 must hold [dimensions, typed array], got {_name(major, pair)}")
        found = self.typed(where, self.dimensions(where))
        if not self.array_ends(pair, 2):
            raise invalid(f"{where}: tag 40 must hold [dimensions, typed array] and no more")
        return found

    def dimensions(self, where: str) -> tuple[int, ...]:
        major, count = self.head()
        found: list[int] = []
        while major == _ARRAY and len(found) <= _MAX_DIMENSIONS:
            if self.array_ends(count, len(found)):
                return tuple(found)
            major_of_size, size = self.head()
            if major_of_size != _UNSIGNED or size is None:
                raise invalid(
                    f"{where}: tag 40 must hold [dimensions, typed array]; a size is {_MAJORS[major_of_size]}"
                )
            found.append(size)
        what = _name(major, count) if major != _ARRAY else f"more than {_MAX_DIMENSIONS} dimensions"
        raise invalid(f"{where}: tag 40 must hold [dimensions, typed array], got {what}")

    def array_ends(self, count: int | None, done: int) -> bool:
        """Whether an array of `count` items ends after `done` of them; the break of an indefinite one is taken."""
        if count is not None:
            return done == count
        found = self.data[self.at : self.end][:1] == bytes([_BREAK])
        self.at += found
        return found

    def typed(self, where: str, shape: tuple[int, ...] | None) -> Typed:
        major, argument = self.head()
        code = TYPED_ARRAYS.get(argument or 0) if major == _TAG else None
        if code is None:
            raise invalid(f"{where}: expected a typed array (RFC 8746), got {_name(major, argument)}")
        major, size = self.head()
        if major != _BYTES or size is None:
            raise invalid(f"{where}: expected a typed array (RFC 8746) of bytes, got {_name(major, size)}")
        return Typed(self.take(size), np.dtype(code), shape)

    def nested(self, where: str, items: int) -> object:
        """Return the number, boolean or nested arrays of them that stand here, of not many more than `items` heads."""
        start = self.at
        for _ in range(_SPARE + items // _AT_ONCE):
            found = _PLAIN.match(self.data, self.at, self.end)
            if found is None:
                break
            self.at = found.end()
        else:
            raise invalid(f"{where}: many more than its {items} numbers and ends of arrays")
        # Harmless heads, but how many items? As the first of a pair with a text, which cannot be among them: if the
        # second is that text, the first was exactly one item.
        pair = b"".join((_PAIR, self.data[start : self.at], _EMPTY_TEXT))
        try:
            value, text = cbor2.loads(pair)
        except _CBOR2_ERRORS as exc:
            raise invalid(f"{where}: {self.what_stands_here(exc)}") from exc
        if text != "":
            raise invalid(f"{where}: not valid CBOR: more than one item")
        return value

    def what_stands_here(self, error: Exception) -> str:
        """Say why the arrays that end here are not whole: by what is no part of them, or else by the error."""
        if self.at == self.end:
            return f"not valid CBOR: {str(error)[:200]}"
        found = _name(*self.head())
        return f"expected a typed array, or nested arrays of numbers or booleans, got {found}"


def _name(major: int, argument: int | None) -> str:
    return f"tag {describe(argument)}" if major == _TAG else _MAJORS[major]
