"""Every codec of the registry keeps the rules of edged/codecs/base.py. A new one must bring a counterpart."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.codec_cases import (
    CASES,
    SHAPE,
    Array,
    Case,
    empty_inputs,
    image_signature,
    same_bits,
    signature_for,
)

from edged import codecs
from edged.bundle import Signature
from edged.errors import ERROR_PREFIX, Code, RequestError

EACH = pytest.mark.parametrize("name", codecs.NAMES)
TENSORS = pytest.mark.parametrize("name", [n for n in codecs.NAMES if not CASES[n].is_image])
# Values at which a careless conversion shows: signed zero, the smallest subnormal, the largest, a long fraction.
EDGES = np.array([0.0, -0.0, 1e-45, -1e-45, 3.4028235e38, -3.4028235e38, 0.1, 16777217.0], np.float32)


def sample(case: Case, dtype: str, seed: int = 0) -> dict[str, Array]:
    """Return one input of `SHAPE` whose values the codec must carry unharmed."""
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(0, 2 if dtype == "bool" else 120, SHAPE).astype(dtype)}


def signature_of(case: Case, named: dict[str, Array]) -> Signature:
    return image_signature(named["x"].dtype.name) if case.is_image else signature_for(named)


def decode(name: str, payload: Any, signature: Signature) -> list[Array]:
    into = empty_inputs(signature)
    codecs.load(name).decode(payload, signature, into)
    return into


def outcome(name: str, payload: bytes, signature: Signature) -> RequestError | None:
    try:
        decode(name, payload, signature)
    except RequestError as error:
        return error
    return None


def refused(name: str, payload: bytes, signature: Signature) -> RequestError:
    with pytest.raises(RequestError) as caught:
        decode(name, payload, signature)
    assert caught.value.code is Code.INVALID_ARGUMENT, caught.value
    return caught.value


def test_every_codec_has_a_counterpart() -> None:
    """Proves that no codec escapes this suite."""
    assert set(CASES) == set(codecs.NAMES)


@EACH
def test_the_table_says_what_the_class_says(name: str) -> None:
    """Proves that a Content Type picks the codec that names it, and that replies have a codec."""
    codec = codecs.load(name)
    assert codec.name == name
    assert codecs.name_for_content_type(codec.content_type) == name
    assert codec.reply_codec in codecs.NAMES
    assert codecs.load(name) is codec


@EACH
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_no_bytes_raise_anything_but_a_request_error(name: str, data: st.DataObject) -> None:
    """Proves that garbage, and a good payload that was damaged, decode or are refused: nothing else is raised."""
    case = CASES[name]
    named = sample(case, case.dtypes[0])
    payload = bytearray(case.request(named)) if data.draw(st.booleans()) else bytearray()
    at = data.draw(st.integers(0, len(payload)))
    payload[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=64))
    error = outcome(name, bytes(payload), signature_of(case, named))
    if error is not None:
        assert error.code is Code.INVALID_ARGUMENT
        assert len(error.to_json()) < 2_000


@EACH
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b))])
def test_each_buffer_type_is_taken(name: str, wrap: Any) -> None:
    """Proves that what a transport hands over (bytes, a view of its receive buffer) needs no copy first."""
    case = CASES[name]
    for dtype in case.dtypes:
        named = sample(case, dtype)
        payload = case.request(named)
        want = named["x"] if case.expected is None else case.expected(payload).astype(dtype)
        assert same_bits(decode(name, wrap(payload), signature_of(case, named))[0], want), dtype


@TENSORS
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_decoded_is_what_was_sent(name: str, data: st.DataObject) -> None:
    """Proves that any values of any dtype arrive bit for bit, in two inputs of different shape."""
    dtypes = st.sampled_from([np.dtype(d) for d in CASES[name].dtypes])
    named = {n: data.draw(_arrays(data.draw(dtypes), s)) for n, s in (("b", (1, 5)), ("a", (2, 3)))}
    got = decode(name, CASES[name].request(named), signature_for(named))
    assert all(same_bits(g, want) for g, want in zip(got, named.values(), strict=True))


def _arrays(dtype: np.dtype[Any], shape: tuple[int, ...]) -> st.SearchStrategy[Array]:
    finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    return hnp.arrays(dtype, shape, elements=hnp.from_dtype(dtype, **finite))  # type: ignore[arg-type]  # flags are bools


@TENSORS
def test_the_edges_of_float32_survive(name: str) -> None:
    """Proves bit-exactness both ways at signed zero, subnormals and the largest values."""
    named, case = {"x": EDGES[np.newaxis]}, CASES[name]
    signature = signature_for(named)
    assert same_bits(decode(name, case.request(named), signature)[0], named["x"])
    assert case.reply is not None
    assert same_bits(case.reply(codecs.load(name).encode([named["x"]], signature), signature)[0], named["x"])


@TENSORS
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_encoded_is_read_by_another_parser(name: str, data: st.DataObject) -> None:
    """Proves that answers of any dtype, two outputs, not contiguous, are read right by code that is not ours."""
    case = CASES[name]
    dtypes = st.sampled_from([np.dtype(d) for d in case.dtypes])
    named = {n: data.draw(_arrays(data.draw(dtypes), (6, 2))).T for n in ("b", "a")}
    signature = signature_for(named)
    encoded = codecs.load(name).encode(list(named.values()), signature)
    assert not encoded.startswith(ERROR_PREFIX) or name in ("raw",)
    assert case.reply is not None
    got = case.reply(encoded, signature)
    assert all(same_bits(g, np.ascontiguousarray(want)) for g, want in zip(got, named.values(), strict=True))


@pytest.mark.parametrize("name", [n for n in codecs.NAMES if CASES[n].round_trip])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_round_trip_is_the_identity(name: str, data: st.DataObject) -> None:
    """Proves that a client may use the same codec for its requests: encode, then decode, changes no bit."""
    dtype = np.dtype(data.draw(st.sampled_from(CASES[name].dtypes)))
    array = data.draw(_arrays(dtype, (2, 3)))
    signature = signature_for({"x": array})
    assert same_bits(decode(name, codecs.load(name).encode([array], signature), signature)[0], array)


@EACH
def test_cut_off_and_too_long_payloads_are_refused(name: str) -> None:
    """Proves that a payload cut anywhere is refused, and a tensor payload with bytes behind it too."""
    case = CASES[name]
    named = sample(case, "float32")
    payload, signature = case.request(named), signature_of(case, named)
    for size in (0, 1, len(payload) // 2, len(payload) - 12):
        refused(name, payload[:size], signature)
    if not case.is_image:
        refused(name, payload[:-1], signature)
        refused(name, payload + b"\x01", signature)


@TENSORS
def test_another_shape_is_refused(name: str) -> None:
    """Proves that one more row, one less column and a missing input are refused, naming what was expected."""
    case, signature = CASES[name], signature_for({"x": np.zeros((1, 3), np.float32)})
    for shape in ((2, 3), (1, 2), (3, 3)):
        error = refused(name, case.request({"x": np.ones(shape, np.float32)}), signature)
        assert "expected" in error.message
        assert "x" in error.message
    two = signature_for({"x": np.zeros((1, 3), np.float32), "z": np.zeros((1, 2), np.float32)})
    refused(name, case.request({"x": np.ones((1, 3), np.float32)}), two)


@pytest.mark.parametrize("name", ["npy", "cbor"])
@pytest.mark.parametrize(("sent", "wanted"), [("float64", "float32"), ("int32", "float32"), ("uint8", "int8")])
def test_another_dtype_is_refused(name: str, sent: str, wanted: str) -> None:
    """Proves that formats that carry a dtype are not converted behind the client's back."""
    named = {"x": np.ones((1, 3), sent)}
    error = refused(name, CASES[name].request(named), signature_for({"x": np.zeros((1, 3), wanted)}))
    assert sent in error.message
    assert wanted in error.message


@TENSORS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_and_infinity_are_refused(name: str, bad: float, dtype: str) -> None:
    """Proves that no NaN or Inf reaches a model, whatever stands beside it, and that the input is named."""
    array = np.full((1, 3), 3.0, dtype)
    array[0, 1] = bad
    message = refused(name, CASES[name].request({"x": array}), signature_for({"x": array})).message
    assert name == "json" or ("'x'" in message and "1]" in message)


@EACH
def test_a_refusal_leaves_nothing_behind(name: str) -> None:
    """Proves that after each kind of refused payload the next good one, into the same arrays, decodes right."""
    case = CASES[name]
    named = sample(case, "float32")
    payload, signature = case.request(named), signature_of(case, named)
    into = empty_inputs(signature)
    codec = codecs.load(name)
    want = named["x"] if case.expected is None else case.expected(payload).astype(np.float32)
    for bad in (b"", b"garbage", payload[:-12], payload[: len(payload) // 2]):
        with pytest.raises(RequestError):
            codec.decode(bad, signature, into)
        codec.decode(payload, signature, into)
        assert same_bits(into[0], want)


@pytest.mark.parametrize("name", [n for n in codecs.NAMES if CASES[n].is_image])
def test_a_decode_only_codec_says_so(name: str) -> None:
    """Proves that asking for an image as the answer is an error reply, not a crash."""
    with pytest.raises(RequestError) as caught:
        codecs.load(name).encode([], image_signature())
    assert caught.value.code is Code.UNIMPLEMENTED
