"""The .npy codec against np.save: versions, orders and byte orders in, and hostile headers refused."""

from __future__ import annotations

import io
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from support.codec_cases import Array, empty_inputs, npy_bytes, signature_for

from edged.codecs.npy import Npy
from edged.errors import Code, RequestError

VALUES = np.arange(24, dtype=np.float32).reshape(1, 4, 6)


def decode(payload: bytes, like: Array = VALUES) -> Array:
    signature = signature_for({"x": like})
    into = empty_inputs(signature)
    Npy().decode(payload, signature, into)
    return into[0]


def refused(payload: bytes, like: Array = VALUES) -> str:
    with pytest.raises(RequestError) as caught:
        decode(payload, like)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


def with_header(header: str, data: bytes = VALUES.tobytes(), version: int = 1, length: int | None = None) -> bytes:
    text = header.encode()
    size = struct.pack("<H" if version == 1 else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4, 6), }"


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("change", [np.ascontiguousarray, np.asfortranarray, lambda a: a.astype(">f4"), lambda a: a[0]])
def test_whatever_numpy_writes_is_read(version: tuple[int, int], change: Any) -> None:
    """Every version, C and Fortran order, either byte order, with and without the batch of 1."""
    out = io.BytesIO()
    np.lib.format.write_array(out, change(VALUES), version=version)  # type: ignore[no-untyped-call]  # numpy's own
    np.testing.assert_array_equal(decode(out.getvalue()), VALUES)


@pytest.mark.parametrize(
    "header",
    [
        GOOD,
        GOOD + "   \n",
        '{"shape":(1,4,6),"descr":"<f4","fortran_order":False}',
        " { 'fortran_order' : False , 'shape' : ( 1 , 4 , 6 , ) , 'descr' : '<f4' , } ",
    ],
)
def test_other_writers_headers_are_read(header: str) -> None:
    """Any order of keys, either quote, any spacing: the format asks a reader not to depend on them."""
    np.testing.assert_array_equal(decode(with_header(header)), VALUES)


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (GOOD.replace("<f4", "<f8"), "expected float32, got float64"),
        (GOOD.replace("<f4", "<i4"), "expected float32, got int32"),
        (GOOD.replace("<f4", "|O"), "not the .npy header of a plain array"),
        (GOOD.replace("'<f4'", "[('a', '<f4')]"), "not the .npy header of a plain array"),
        (GOOD.replace("<f4", "<f3"), "cannot be read"),
        (GOOD.replace("1, 4, 6", "2, 4, 6"), "expected shape [1, 4, 6], got [2, 4, 6]"),
        (GOOD.replace("1, 4, 6", "4, 6, 1"), "expected shape"),
        (GOOD.replace("1, 4, 6", "24,"), "got [24]"),
        (GOOD.replace("1, 4, 6", "-1, 4, 6"), "not the .npy header"),
        (GOOD.replace("1, 4, 6", "9" * 5000), "cannot be read"),
        (GOOD.replace("1, 4, 6", "1, " * 2000), "2000 dimensions"),
        (GOOD.replace("1, 4, 6", "4 6"), "cannot be read"),
        (GOOD.replace("'fortran_order': False, ", ""), "not the .npy header"),
        (GOOD.replace("'fortran_order': False", "'descr': '<f4'"), "not the .npy header"),
        (GOOD.replace("False", "__import__('os').abort()"), "not the .npy header"),
        ("(" * 9000, "not the .npy header"),
        ("", "not the .npy header"),
        (" " * 10_001, "too long or cut off"),
    ],
    ids=range(18),
)
def test_other_headers_are_refused(header: str, text: str) -> None:
    """Wrong dtypes and shapes say so; a header is never evaluated, whatever it holds."""
    assert text in refused(with_header(header))
    assert len(refused(with_header(header))) < 200


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "not a .npy"),
        (b"\x93NUMPY", "not a .npy"),
        (b"PK\x03\x04" + bytes(20), "not a .npy"),
        (with_header(GOOD).replace(b"\x01\x00", b"\x04\x00", 1), "version 4.0"),
        (with_header(GOOD, version=2, length=2**32 - 1), "4294967295 bytes is too long"),
        (with_header(GOOD, data=b""), "expected 96 bytes after the header, got 0"),
        (with_header(GOOD)[:-1], "got 95"),
        (with_header(GOOD) + b"\0\0", "2 bytes too many"),
        (npy_bytes(VALUES) + npy_bytes(VALUES), "bytes too many"),
        (b"\x93NUMPY\x01\x00\xff", "too long or cut off"),
    ],
    ids=range(10),
)
def test_other_streams_are_refused(payload: bytes, text: str) -> None:
    """Other files, other versions, and data that is too short or too long."""
    assert text in refused(payload)


def test_a_pickle_is_never_loaded() -> None:
    """An object array, which numpy could load by running code, is refused by its header."""
    out = io.BytesIO()
    np.save(out, np.array([print], object), allow_pickle=True)
    assert "not the .npy header of a plain array" in refused(out.getvalue())


def test_several_inputs_are_streams_one_after_another() -> None:
    """As np.save to one open file writes them; the second error names the second input."""
    named: dict[str, Array] = {"b": VALUES, "a": np.array([[3]], np.int8)}
    signature = signature_for(named)
    into = empty_inputs(signature)
    Npy().decode(npy_bytes(VALUES) + npy_bytes(named["a"]), signature, into)
    np.testing.assert_array_equal(into[0], VALUES)
    assert into[1].tolist() == [[3]]
    with pytest.raises(RequestError, match=r"input 'a': not a \.npy"):
        Npy().decode(npy_bytes(VALUES), signature, into)


@pytest.mark.parametrize("shape", [(), (1, 0), (3,)])
def test_scalars_and_empty_arrays_both_ways(shape: tuple[int, ...]) -> None:
    """Shapes without a dimension or an element keep their shape."""
    array = np.ones(shape, np.float32)
    np.testing.assert_array_equal(decode(npy_bytes(array), array), array)
    back = np.load(io.BytesIO(Npy().encode([array], signature_for({"x": array}))))
    assert back.shape == shape


def test_answers_are_little_endian_in_c_order() -> None:
    """Whatever lies in memory: simple readers know only this form."""
    encoded = Npy().encode([np.asfortranarray(VALUES[0]).astype(">f4")], signature_for({"x": VALUES[0]}))
    assert b"'descr': '<f4', 'fortran_order': False" in encoded
    assert encoded.endswith(VALUES.tobytes())


def test_what_is_too_long_costs_nothing() -> None:
    """The header says how much is read: 20 MB behind it, or claimed by it, are neither copied nor looked at."""
    array = np.ones((1, 3), np.float32)
    claimed = npy_bytes(np.ones((1, 5_000_000), np.float32))
    for payload in (npy_bytes(array) + bytes(20_000_000), claimed):
        signature = signature_for({"x": array})
        into = empty_inputs(signature)
        tracemalloc.start()
        with pytest.raises(RequestError, match=r"bytes too many|expected shape"):
            Npy().decode(payload, signature, into)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100_000
