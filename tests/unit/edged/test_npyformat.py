"""The .npy reader against numpy's writer."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edged.npyformat import Header, read_array, read_header

_ARRAYS = hnp.arrays(
    st.sampled_from(["<f4", ">f8", "i1", ">u2", "?", "<c8", "<f2"]),
    hnp.array_shapes(min_dims=0, max_dims=4, max_side=4),
)


def _saved(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version, allow_pickle=False)
    return out.getvalue()


@given(_ARRAYS, st.sampled_from([(1, 0), (2, 0), (3, 0)]), st.booleans())
def test_what_numpy_writes_is_read(array: np.ndarray[Any, Any], version: tuple[int, int], fortran: bool) -> None:
    """Bit for bit, in every version, both orders and any byte order; what follows the stream is left."""
    ordered = np.asfortranarray(array) if fortran else array
    found, rest = read_array(memoryview(_saved(ordered, version) + b"next"))
    assert (found.shape, found.dtype, found.tobytes()) == (ordered.shape, array.dtype, array.tobytes())
    assert bytes(rest) == b"next"


def test_empty_arrays() -> None:
    """No element, and still a shape."""
    found, rest = read_array(memoryview(_saved(np.empty((0, 3), np.int8))))
    assert (found.shape, found.dtype, len(rest)) == ((0, 3), np.int8, 0)


def test_keys_in_any_order() -> None:
    """A writer should sort the three keys, but need not."""
    text = b"{'shape': (2,), 'fortran_order': True, \"descr\": '<f4'}"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    assert read_header(memoryview(data))[0] == Header(np.dtype("<f4"), True, (2,))


_GOOD = _saved(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not a .npy"), (b"PK" + _GOOD, "not a .npy"), (b"\x93NUMPY\x04\x00" + _GOOD[8:], "version 4.0"),
        (_GOOD[:40], "cut off"), (_GOOD[:-1], "expected 8 bytes after the header, got 7"),
        (_GOOD.replace(b"<f4", b"|O8"), "not the .npy header"),
        (_GOOD.replace(b"(2,)", b"(-2)"), "not the .npy header"),
        (_GOOD.replace(b"<f4", b"<f3"), "cannot be read"),
        (_GOOD.replace(b"'descr'", b"'shape'"), "not the .npy header"),
        (_GOOD.replace(b"(2,), ", b"(" + b"9" * 9 + b")"), "bytes after the header"),
    ],
)  # fmt: skip
def test_anything_else_is_a_value_error(data: bytes, what: str) -> None:
    """Nothing is evaluated, and nothing is allocated for sizes that are not there."""
    with pytest.raises(ValueError, match=what):
        read_array(memoryview(data))
