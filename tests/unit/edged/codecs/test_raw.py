"""The raw codec: its layout on the wire, its messages, and its promise to allocate nothing of the payload's size."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from support.codec_cases import empty_inputs, signature_for

from edged.bundle import Signature, TensorSpec
from edged.codecs.raw import Raw
from edged.errors import RequestError


def test_the_layout_is_little_endian_in_declared_order() -> None:
    """Against struct, in both directions."""
    named = {"z": np.array([[1.5, -2.0]], np.float32), "a": np.array([[258]], np.int32)}
    wire = struct.pack("<ffi", 1.5, -2.0, 258)
    signature = signature_for(named)
    into = empty_inputs(signature)
    Raw().decode(wire, signature, into)
    assert [a.tolist() for a in into] == [[[1.5, -2.0]], [[258]]]
    assert Raw().encode(list(named.values()), signature) == wire


def test_arrays_of_the_other_byte_order_serve_too() -> None:
    """What a big-endian host has in memory reads and writes the same bytes."""
    wire = struct.pack("<ff", 1.5, -2.0)
    into = [np.zeros((1, 2), ">f4")]
    Raw().decode(wire, signature_for({"x": np.zeros((1, 2), np.float32)}), into)
    assert into[0].tolist() == [[1.5, -2.0]]
    assert Raw().encode(into, signature_for({})) == wire


def test_a_wrong_length_says_what_was_expected() -> None:
    """The message has both lengths and the inputs, so that a sensor developer can see the missing column."""
    signature = signature_for({"imu": np.zeros((1, 100, 6), np.float32)})
    with pytest.raises(RequestError, match=r"expected 2400 bytes \('imu': float32 \[1, 100, 6\]\), got 2000"):
        Raw().decode(bytes(2000), signature, empty_inputs(signature))


def test_length_is_in_bytes_whatever_the_view_counts() -> None:
    """A memoryview of floats has a quarter as many elements as bytes."""
    values = np.array([[1.0, 2.0]], np.float32)
    signature = signature_for({"x": values})
    into = empty_inputs(signature)
    Raw().decode(values.ravel().data, signature, into)
    assert into[0].tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("shape", [(), (1, 0), (0,)])
def test_scalars_and_empty_inputs(shape: tuple[int, ...]) -> None:
    """Shapes without a dimension or without an element are no special case for the client."""
    array = np.ones(shape, np.float32)
    signature = signature_for({"x": array})
    into = empty_inputs(signature)
    Raw().decode(array.tobytes(), signature, into)
    np.testing.assert_array_equal(into[0], array)
    assert Raw().encode([array], signature) == array.tobytes()


def test_decoding_allocates_nothing_of_the_payloads_size() -> None:
    """4 MB decode with under 100 kB of new memory, at an odd offset of a larger buffer too."""
    values = np.ones((1, 1_000_000), np.float32)
    signature = signature_for({"x": values})
    into = empty_inputs(signature)
    buffer = b"\0" + values.tobytes()
    tracemalloc.start()
    Raw().decode(memoryview(buffer)[1:], signature, into)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    np.testing.assert_array_equal(into[0], values)


def test_the_clients_dtype_is_float_where_the_daemon_converts() -> None:
    """An int8 model with `io: float` takes float32 on the wire, one with `io: quantized` takes int8."""
    for io, size in (("float", 12), ("quantized", 3)):
        spec = TensorSpec("x", "int8", (1, 3), 0.5, 0, io)  # type: ignore[arg-type]  # a Literal from a loop
        signature = Signature((spec,), ())
        into = empty_inputs(signature)
        Raw().decode(bytes(size), signature, into)
        assert into[0].tolist() == [[0, 0, 0]]
