"""Request payloads and reply payloads against numpy and the standard library's json."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json

import cbor2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from edged import codecs
from edged.bundle import Signature, TensorSpec
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


def _npy_of(shape, descr="<f4"):
    """A .npy stream of four zero bytes whose header says anything."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(4)


@pytest.mark.parametrize(
    ("payload", "codec", "outputs"),
    [
        (b"abc", "raw", (OutputMeta("y", "float32", (1,)),)),
        (b"abcde", "raw", (OutputMeta("y", "float32", (1,)),)),
        (b"abcdefgh", "raw", (OutputMeta("y", "object", (1,)),)),
        (b"abcdefgh", "raw", (OutputMeta("y", "no such", (1,)),)),
        (b"abcdefgh", "raw", (OutputMeta("y", "(1 2)f4", (1,)),)),
        (b"", "raw", (OutputMeta("y", "float32", (0, 10**17, 10**17)),)),
        (b"\x93NUMPY\x01\x00\x10\x00" + b"{'descr': '<f4'\n", "npy", ()),
        (_npy_of("(0, 99999999999999999999)"), "npy", ()),
        (_npy_of("(99999999999,)"), "npy", ()),
        (_npy_of("(" + "1," * 99 + ")"), "npy", ()),
        (_npy_of("(1,)", "<f3"), "npy", ()),
        (_npy_of("(1,)", "|O"), "npy", ()),
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
        (b'{"outputs": [null]}', "json", (OutputMeta("y", "int32", (1,)),)),
        (b'{"outputs": [{}]}', "json", (OutputMeta("y", "float32", (1,)),)),
        (b'{"outputs": {"a": {"b": 1}}}', "json", ()),
        (b'{"outputs": "text"}', "json", ()),
        (b'{"outputs": [1e999]}', "json", (OutputMeta("output", "int64", (1,)),)),
        (b'{"outputs": [99999999999999999999]}', "json", (OutputMeta("output", "int8", (1,)),)),
        (b'{"outputs": null}', "json", ()),
        (b"\xa0", "cbor", ()),
        (b"\xa1", "cbor", ()),
        (b"\xbf\xff", "cbor", ()),
        (b"\xa1\x67outputs\xa1\x61y" + b"\x81" * 200, "cbor", ()),
        (b"\xa1\x67outputs\xa1\x61y\xc2\x41\x01", "cbor", ()),
        (b"\xa1\x67outputs\xa1\x61y\xd8\x28\x82\x81\x03\xd8\x40\x42ab", "cbor", ()),
        (b"\xa1\x67outputs\xa2\x61y\x01\x61y\x01", "cbor", ()),
        (b"\xa1\x67outputs\xa1\x61y\x9b" + b"\xff" * 8, "cbor", ()),
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
    assert codec_of("image/png; x=y", "raw") == "png"


@pytest.mark.parametrize("name", codecs.NAMES)
def test_reply_codecs_are_those_of_the_daemons_codecs(name):
    """Over MQTT 3.1.1 nothing but this rule tells in what a request is answered."""
    try:
        codec = codecs.load(name)
    except RequestError:
        pytest.skip(f"codec {name} is not installed")
    assert codec_of(None, name) == codec.reply_codec
    assert codec_of(codec.content_type, "raw") == name


_DAMAGE = st.tuples(st.integers(0, 200), st.binary(min_size=1, max_size=3))


@given(
    st.sampled_from(["raw", "npy", "json"]), st.lists(_DAMAGE, max_size=4),
    st.sampled_from(["float32", "int8", "bool", "complex64"]),
    st.lists(st.integers(0, 10**18), max_size=40).map(tuple),
)  # fmt: skip
def test_no_reply_raises_anything_else(codec, damage, dtype, shape):
    """Damaged bytes, and whatever a meta may say of them, are an answer or a RequestError."""
    payload = bytearray(encode({"a": A, "b": B}, codec).payload)
    for place, junk in damage:
        payload[place : place + len(junk)] = junk
    result = Result(bytes(payload), codec, Meta(outputs=(OutputMeta("a", dtype, shape),)), 1.0, 0)
    with contextlib.suppress(RequestError):
        _ = result.outputs
    with contextlib.suppress(RequestError):
        _ = result.document


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


_PAIR = {"b": B, "a": A, "i": np.array([[-1, 300]], ">i2"), "s": np.float32(7)}


def test_several_arrays_go_by_name(monkeypatch):
    """In CBOR, as the library reads it, where that is installed; else in JSON. One array is npy under any name."""
    assert [encode(inputs, None).codec for inputs in (A, {"any": A}, b"x")] == ["npy", "npy", "raw"]
    encoded = encode(_PAIR, None)
    assert encoded.codec == "cbor"
    found = cbor2.loads(encoded.payload)["inputs"]
    assert found["b"] == [True, False]
    tag, (shape, typed) = found["a"].tag, found["a"].value
    assert (tag, list(shape), typed.tag, typed.value) == (40, [2, 3], 85, A.tobytes())
    assert (found["i"].value[1].tag, found["i"].value[1].value) == (77, _PAIR["i"].astype("<i2").tobytes())
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    encoded = encode({"b": B, "a": A}, None)
    assert (encoded.codec, list(json.loads(encoded.payload)["inputs"])) == ("json", ["b", "a"])


@pytest.mark.parametrize(("inputs", "error"), [({"a": np.array([1j]), "b": A}, BadDataError), (A, UsageError)])
def test_what_cbor_cannot_say(inputs, error):
    """Complex numbers, and an array without a name."""
    with pytest.raises(error):
        encode(inputs, "cbor")


@given(
    st.dictionaries(
        st.text(max_size=4),
        hnp.arrays(
            st.sampled_from(["<f2", ">f4", "<f8", "|u1", ">u2", "<u4", "<u8", "|i1", "<i2", ">i4", "<i8", "?"]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_cbor_comes_back_bit_for_bit(arrays):
    """A device's reply of any dtype, written by the library with RFC 8746's tags, is read back as it was."""
    tags = {
        "u1": 64,
        "u2": 69,
        "u4": 70,
        "u8": 71,
        "i1": 72,
        "i2": 77,
        "i4": 78,
        "i8": 79,
        "f2": 84,
        "f4": 85,
        "f8": 86,
    }
    body, outputs = {}, []
    for name, array in arrays.items():
        little = array.astype(array.dtype.newbyteorder("<"))
        typed = cbor2.CBORTag(tags.get(little.dtype.str[1:], 0), little.tobytes())
        body[name] = array.tolist() if array.dtype.kind == "b" else cbor2.CBORTag(40, [list(array.shape), typed])
        outputs.append(OutputMeta(name, array.dtype.name, array.shape))
    payload = cbor2.dumps({"outputs": body, "classes": {"y": [{"label": "walk", "score": 0.5}]}, "n": -3, "z": None})
    result = Result(payload, "cbor", Meta(outputs=tuple(outputs)), 1.0, 0)
    assert (result.document["n"], result.document["z"], result.document["classes"]["y"][0]["score"]) == (-3, None, 0.5)
    for name, array in arrays.items():
        found = result.outputs[name]
        if array.dtype.kind != "b" or array.size:  # the shape of empty lists is lost
            assert found.shape == array.shape
        assert found.astype(array.dtype).tobytes() == array.tobytes()
        assert found.flags.writeable


@given(st.binary(max_size=40))
def test_no_cbor_raises_anything_else(junk):
    """Whatever a stranger sends as CBOR is an answer or a RequestError."""
    result = Result(b"\xa1\x67outputs" + junk, "cbor", Meta(), 1.0, 0)
    with contextlib.suppress(RequestError):
        _ = result.outputs


@pytest.mark.parametrize(("shape", "fits"), [((1, 3, 2), True), ((3, 2), True), ((2, 3), False), ((1, 1, 3, 2), False)])
def test_json_may_leave_out_the_batch(shape, fits):
    """As npy and CBOR may: a device takes the window of one sensor as it is, and no other shape."""
    spec = TensorSpec(name="x", dtype="float32", shape=(1, 3, 2))
    signature = Signature(inputs=(spec,), outputs=(spec,))
    array, into = np.arange(6, dtype=np.float32), np.zeros((1, 3, 2), np.float32)
    payload = encode(array.reshape(shape), "json").payload
    if not fits:
        with pytest.raises(RequestError, match="expected"):
            codecs.load("json").decode(payload, signature, [into])
        return
    codecs.load("json").decode(payload, signature, [into])
    assert into.tobytes() == array.tobytes()
