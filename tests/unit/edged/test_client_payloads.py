"""Request payloads and reply payloads against numpy and the standard library's json."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edged.client.payloads import codec_of, decode, encode
from edged.client.result import Result
from edged.errors import BadDataError, RequestError, UsageError
from edged.meta import Meta, OutputMeta

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.array([True, False])


def test_raw_is_the_bytes_in_the_mappings_order():
    """A mapping is sent in its own order, which is the model's."""
    assert encode({"b": B, "a": A}, "raw").payload == b"\x01\x00" + A.tobytes()


def test_raw_is_little_endian_and_contiguous():
    """Byte order and memory layout of the caller do not reach the wire."""
    expected = A.astype("<f4").tobytes()
    assert encode(A.astype(">f4"), "raw").payload == expected
    assert encode(np.asfortranarray(A), "raw").payload == expected
    assert encode(np.repeat(A, 2, axis=1)[:, ::2], "raw").payload == expected


def test_npy_is_read_by_numpy():
    """Several arrays are one .npy after the other, a scalar keeps its empty shape."""
    buffer = io.BytesIO(encode({"a": A, "s": np.float32(7)}, "npy").payload)
    np.testing.assert_array_equal(np.load(buffer), A)
    scalar = np.load(buffer)
    assert (scalar.shape, scalar.dtype, scalar) == ((), np.float32, 7)
    assert not buffer.read()


def test_json_is_tf_servings_column_form():
    """One unnamed input is the tensor itself, named ones are an object."""
    assert json.loads(encode([[1, 2]], "json").payload) == {"inputs": [[1, 2]]}
    assert json.loads(encode({"a": A, "b": B}, "json").payload) == {"inputs": {"a": A.tolist(), "b": [True, False]}}


@pytest.mark.parametrize("codec", ["raw", "npy", "json", "jpeg", "png", "cbor"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_encoded_bytes_go_as_they_are(codec, kind):
    """A payload of the caller's is not touched, whatever kind of bytes it is."""
    encoded = encode(kind(b"\xff\xd8x"), codec)
    assert (encoded.payload, encoded.codec) == (b"\xff\xd8x", codec)


@pytest.mark.parametrize(
    ("inputs", "codec", "error"),
    [
        (A, "xml", UsageError),
        (A, "jpeg", UsageError),
        (np.array(["a"]), "raw", BadDataError),
        (np.array([object()]), "npy", BadDataError),
        ([[1], [1, 2]], "raw", BadDataError),
        (np.array([np.nan]), "json", BadDataError),
        (np.array([1j]), "json", BadDataError),
        ({"a": A, "b": None}, "raw", BadDataError),
    ],
)
def test_what_cannot_be_encoded_is_the_callers_mistake(inputs, codec, error):
    """Unknown codecs, arrays for an image codec, text, objects, ragged lists, NaN in JSON."""
    with pytest.raises(error):
        encode(inputs, codec)


def test_raw_reply_is_split_as_meta_says():
    """Names, dtypes and shapes come from the property; the arrays can be written to."""
    outputs = (OutputMeta("s", "int16", ()), OutputMeta("a", "float32", (2, 3)), OutputMeta("e", "int8", (0, 4)))
    found = decode(np.int16(-5).tobytes() + A.tobytes(), "raw", outputs)
    assert list(found) == ["s", "a", "e"]
    assert (found["s"].shape, found["s"].dtype, found["s"]) == ((), np.int16, -5)
    np.testing.assert_array_equal(found["a"], A)
    assert found["e"].shape == (0, 4)
    found["a"][0, 0] = 9


def test_raw_reply_without_meta_is_flat_bytes():
    """Over MQTT 3.1.1 nothing tells the dtype."""
    np.testing.assert_array_equal(decode(b"\x01\xff", "raw", ())["output"], np.array([1, 255], np.uint8))


def test_npy_reply_takes_the_names_that_are_known():
    """With as many names as arrays they are used, else numbers."""
    payload = encode({"x": A, "y": B}, "npy").payload
    named = decode(payload, "npy", (OutputMeta("p", "float32", (2, 3)), OutputMeta("q", "bool", (2,))))
    np.testing.assert_array_equal(named["p"], A)
    np.testing.assert_array_equal(named["q"], B)
    assert list(decode(payload, "npy", ())) == ["output_0", "output_1"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"outputs": [[1, 2]]}, {"y": [[1, 2]]}),
        ({"predictions": [[1, 2]], "classes": []}, {"y": [[1, 2]]}),
        ({"outputs": {"a": [1], "b": [[2]]}}, {"a": [1], "b": [[2]]}),
        ({"predictions": [{"a": 1, "b": [2]}, {"a": 3, "b": [4]}]}, {"a": [1, 3], "b": [[2], [4]]}),
    ],
)
def test_json_reply_forms(body, expected):
    """Column and row form, of one output and of several, as TF Serving answers."""
    found = decode(json.dumps(body).encode(), "json", (OutputMeta("y", "float32", (1, 2)),))
    assert {name: array.tolist() for name, array in found.items()} == expected


def test_json_reply_takes_the_dtypes_that_are_known():
    """A float32 said in digits is a float32 again."""
    value = np.float32(0.1)
    found = decode(json.dumps({"outputs": [float(value)]}).encode(), "json", (OutputMeta("y", "float32", (1,)),))
    assert found["y"].dtype == np.float32
    assert found["y"][0] == value


@pytest.mark.parametrize(
    ("payload", "codec", "outputs"),
    [
        (b"abc", "raw", (OutputMeta("y", "float32", (1,)),)),
        (b"abcde", "raw", (OutputMeta("y", "float32", (1,)),)),
        (b"abcdefgh", "raw", (OutputMeta("y", "object", (1,)),)),
        (b"abcdefgh", "raw", (OutputMeta("y", "no such", (1,)),)),
        (b"abcdefgh", "raw", (OutputMeta("y", "float32", (10**17, 10**17)),)),
        (b"\x93NUMPY\x01\x00", "npy", ()),
        (b"\x93NUMPY\x01\x00\x06\x00{'a': ", "npy", ()),
        (b"PK\x05\x06" + bytes(18), "npy", ()),
        (b"not npy", "npy", ()),
        (b"{}", "json", ()),
        (b"[]", "json", ()),
        (b"\xff", "json", ()),
        (b"[" * 100_000, "json", ()),
        (b'{"predictions": [{"a": 1}, {"b": 1}]}', "json", ()),
        (b'{"outputs": [[1], [1, 2]]}', "json", ()),
        (b"\xa0", "cbor", ()),
    ],
)
def test_unreadable_reply_is_a_request_error(payload, codec, outputs):
    """Short, long, pickled, cut, archived, ragged or foreign: the caller gets one kind of error."""
    with pytest.raises(RequestError, match="cannot be read"):
        _ = Result(payload, codec, Meta(outputs=outputs), 1.0, 0).outputs


def test_reply_codec_is_told_by_its_content_type_else_by_the_request():
    """Images are answered in JSON; a content type wins."""
    assert codec_of("application/x-npy", "raw") == "npy"
    assert codec_of(None, "jpeg") == "json"
    assert codec_of("text/strange", "raw") == "raw"


_ARRAYS = hnp.arrays(
    st.sampled_from(["<f4", "i1", "u1", "<i4", "<f8", "?"]), hnp.array_shapes(min_dims=0, max_dims=3, max_side=4)
)


@given(st.lists(_ARRAYS, min_size=1, max_size=3), st.sampled_from(["raw", "npy"]))
def test_round_trip_bit_for_bit(arrays, codec):
    """What is encoded and described comes back with the same bytes, dtypes and shapes."""
    named = {str(index): array for index, array in enumerate(arrays)}
    outputs = [OutputMeta(name, array.dtype.name, array.shape) for name, array in named.items()]
    found = decode(encode(named, codec).payload, codec, outputs)
    assert list(found) == list(named)
    for name, array in named.items():
        assert (found[name].tobytes(), found[name].dtype, found[name].shape) == (
            array.tobytes(),
            array.dtype,
            array.shape,
        )
