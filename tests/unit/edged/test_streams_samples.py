"""Sample payloads: what each format accepts, what makes a sample bad, and that no bytes at all do harm."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.streams.samples import Bad, Columns, Samples, decoder

PLAIN = Columns.of(("a", "b"), None, None)
MARKED = Columns.of(("a", "b"), "n", "t")
MARKS_FIRST = Columns.of(("t", "n", "a", "b"), "n", "t")


def read(name: str, payload: bytes, columns: Columns = PLAIN) -> list[Samples | Bad]:
    return list(decoder(name, columns)(payload))


def good(
    name: str, payload: bytes, columns: Columns = PLAIN
) -> list[tuple[list[list[float]], int | None, float | None]]:
    found = read(name, payload, columns)
    assert not [item for item in found if isinstance(item, Bad)]
    return [(item.rows.tolist(), item.seq, item.time) for item in found if isinstance(item, Samples)]


def test_json_object_by_name() -> None:
    """The order and extra keys of an object do not matter; seq and time are taken by name."""
    assert good("json", b'{"b": 2, "x": null, "a": 1.5}') == [([[1.5, 2.0]], None, None)]
    assert good("json", b'{"b": 2, "n": 7, "t": 0.25, "a": 1}', MARKED) == [([[1.0, 2.0]], 7, 0.25)]


def test_lists_and_lines_are_in_column_order() -> None:
    """Fields, then seq, then time; where fields lists seq and time, they stand there and are no features."""
    assert good("json", b"[1, 2]") == [([[1.0, 2.0]], None, None)]
    assert good("json", b"[1, 2, 7, 0.25]", MARKED) == [([[1.0, 2.0]], 7, 0.25)]
    assert good("csv", b"1, 2 ,7,.25\r\n", MARKED) == [([[1.0, 2.0]], 7, 0.25)]
    assert good("csv", b"0.25,7,1,2", MARKS_FIRST) == [([[1.0, 2.0]], 7, 0.25)]
    assert good("json", b'{"t": 0.25, "n": 7, "a": 1, "b": 2}', MARKS_FIRST) == [([[1.0, 2.0]], 7, 0.25)]


def test_several_samples_in_one_message() -> None:
    """A JSON list of samples, CSV lines and a raw row of vectors are several samples, in order."""
    two = [([[1.0, 2.0]], None, None), ([[3.0, 4.0]], None, None)]
    assert good("json", b'[[1, 2], {"a": 3, "b": 4}]') == two
    assert good("csv", b"1,2\n\n3,4\n") == two
    assert good("raw", struct.pack("<4f", 1, 2, 3, 4)) == [([[1.0, 2.0], [3.0, 4.0]], None, None)]


def test_seq_is_exact_beyond_float_precision() -> None:
    """A counter past 2^53 is not rounded, in JSON or in CSV; a whole float is a whole number."""
    large = (1 << 62) + 1
    assert good("json", f"[1, 2, {large}, 0]".encode(), MARKED)[0][1] == large
    assert good("csv", f"1,2,{large},0".encode(), MARKED)[0][1] == large
    assert good("json", b"[1, 2, 7.0, 0]", MARKED)[0][1] == 7


BAD_JSON = {
    "no JSON": b"{",
    "no UTF-8": b'{"a": "\xff"}',
    "empty": b"",
    "a number": b"5",
    "an empty list": b"[]",
    "nested too deep": b"[" * 100_000,
    "missing": b'{"a": 1}',
    "too few": b"[1]",
    "too many": b"[1, 2, 3]",
    "text": b'[1, "2"]',
    "true": b"[1, true]",
    "null": b"[1, null]",
    "NaN": b"[1, NaN]",
    "Infinity": b"[-Infinity, 1]",
    "overflows a double": b"[1, 1e999]",
    "overflows a float32": b"[1, 1e39]",
    "an integer beyond any float": b"[1, 1" + b"0" * 400 + b"]",
    "an integer beyond Python's limit": b"[1, 1" + b"0" * 5_000 + b"]",
}
BAD_CSV = {
    "empty": b"",
    "blank": b" \n",
    "a header": b"a,b",
    "too few": b"1",
    "too many": b"1,2,3",
    "an empty cell": b"1,",
    "nan": b"1,nan",
    "inf": b"1,-inf",
    "underscore": b"1,1_0",
    "not ASCII": "1,٣".encode(),
    "overflows": b"1,1e39",
    "hexadecimal": b"1,0x10",
}
BAD_RAW = {
    "empty": b"",
    "not whole vectors": b"\0" * 12,
    "NaN": struct.pack("<2f", 1, float("nan")),
    "infinite": struct.pack("<2f", float("inf"), 1),
}
BAD = [
    *(pytest.param("json", payload, id=f"json {why}") for why, payload in BAD_JSON.items()),
    *(pytest.param("csv", payload, id=f"csv {why}") for why, payload in BAD_CSV.items()),
    *(pytest.param("raw", payload, id=f"raw {why}") for why, payload in BAD_RAW.items()),
]


@pytest.mark.parametrize(("name", "payload"), BAD)
def test_a_bad_sample_is_one_bad_sample(name: str, payload: bytes) -> None:
    """Each is told as bad with a reason of readable length; none raises, none yields values."""
    (item,) = read(name, payload)
    assert isinstance(item, Bad)
    assert 0 < len(item.reason) < 200


@pytest.mark.parametrize("place", ["1.5", '"7"', "true", "null", "NaN", "1e30", "9223372036854775809"])
def test_a_bad_seq_makes_the_sample_bad(place: str) -> None:
    """A seq is a whole number of 64 bits, nothing else."""
    (item,) = read("json", f"[1, 2, {place}, 0]".encode(), MARKED)
    assert isinstance(item, Bad)
    assert item.reason.startswith("n ")


@pytest.mark.parametrize("place", ['"noon"', "true", "NaN", "Infinity", "1e999"])
def test_a_bad_time_makes_the_sample_bad(place: str) -> None:
    """A time is a finite number of seconds, nothing else."""
    (item,) = read("json", f"[1, 2, 7, {place}]".encode(), MARKED)
    assert isinstance(item, Bad)
    assert item.reason.startswith("t ")


def test_bad_samples_keep_their_place_among_good_ones() -> None:
    """One bad line or vector does not cost its neighbours, and the order shows where the hole is."""
    rows = np.array([[1, 2], [np.nan, 2], [3, np.inf], [4, 5], [6, 7]], "<f4")
    kinds = [type(item) for item in read("raw", rows.tobytes())]
    assert kinds == [Samples, Bad, Bad, Samples]
    assert [type(item) for item in read("csv", b"1,2\nx,2\n3,4")] == [Samples, Bad, Samples]
    assert [type(item) for item in read("json", b'[[1, 2], "x", [3, 4]]')] == [Samples, Bad, Samples]


@given(st.binary(max_size=64) | st.text(alphabet="0123456789.,-+eEnaif \n_", max_size=64).map(str.encode))
def test_no_bytes_do_harm(payload: bytes) -> None:
    """Any bytes, in any format: finite float32 rows of the right width, or a reason."""
    for name in ("json", "csv", "raw"):
        for item in read(name, payload):
            if isinstance(item, Samples):
                assert item.rows.dtype == np.float32
                assert item.rows.shape[1] == 2
                assert np.isfinite(item.rows).all()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abnt"), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_no_json_value_does_harm(value: object) -> None:
    """Any JSON value is samples with finite values, or a reason."""
    for columns in (PLAIN, MARKED, MARKS_FIRST):
        for item in read("json", json.dumps(value).encode(), columns):
            assert isinstance(item, Bad) or np.isfinite(item.rows).all()
