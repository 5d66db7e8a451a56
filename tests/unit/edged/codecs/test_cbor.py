"""CBOR against cbor2 and RFC 8746: each typed array in, what is no tensor refused, answers read by struct."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import cbor2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.codec_cases import Array, empty_inputs, from_typed, same_bits, signature_for, typed_array

from edged.bundle import Postprocess
from edged.codecs import cborform, common
from edged.codecs.cbor import Cbor
from edged.codecs.cborform import TYPED_ARRAYS
from edged.errors import Code, RequestError

VALUES = np.array([[1.5, -2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)[np.newaxis]
TYPED = typed_array(VALUES)


def decode(value: object, like: Array = VALUES) -> Array:
    signature = signature_for({"x": like})
    into = empty_inputs(signature)
    Cbor().decode(cbor2.dumps({"inputs": {"x": value}}), signature, into)
    return into[0]


def refused(payload: bytes) -> str:
    with pytest.raises(RequestError) as caught:
        Cbor().decode(payload, signature_for({"x": VALUES}), empty_inputs(signature_for({"x": VALUES})))
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        cbor2.CBORTag(40, [[1, 2, 3], TYPED]),
        cbor2.CBORTag(40, [[2, 3], TYPED]),
        TYPED,
        VALUES.tolist(),
        [[[1.5, -2, 3], [4, 5, 6]]],
        cbor2.CBORTag(40, [[1, 2, 3], cbor2.CBORTag(81, VALUES.astype(">f4").tobytes())]),
    ],
    ids=["tag 40", "without batch", "flat", "lists", "lists with integers", "big-endian"],
)
def test_each_form_of_a_tensor_is_read(value: object) -> None:
    """Tag 40, a typed array alone, nested arrays; either byte order."""
    assert same_bits(decode(value), VALUES)


@pytest.mark.parametrize("tag", sorted(TYPED_ARRAYS))
def test_the_table_is_that_of_rfc_8746(tag: int) -> None:
    """Each row against the bit fields 0b010_f_s_e_ll of section 2.1, and each is really read."""
    f, s, e, ll = tag >> 4 & 1, tag >> 3 & 1, tag >> 2 & 1, tag & 3
    size = 2 << ll if f else 1 << ll
    dtype = np.dtype(f"{'<' if e else '>'}{'f' if f else 'i' if s else 'u'}{size}")
    assert np.dtype(TYPED_ARRAYS[tag]) == dtype
    array = np.array([[1, 2]], dtype.newbyteorder("="))
    assert same_bits(decode(cbor2.CBORTag(tag, array.astype(dtype).tobytes()), array), array)


def inputs(x: object, **more: object) -> bytes:
    return cbor2.dumps({"inputs": {"x": x, **more}})


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "not valid CBOR"),
        (cbor2.dumps({"inputs": {"x": TYPED}}) + b"\0", "left over"),
        (cbor2.dumps([1]), "expected a map"),
        (cbor2.dumps({"instances": [1]}), "expected a map"),
        (cbor2.dumps({"inputs": {"x": TYPED}, "id": 1}), "expected a map"),
        (cbor2.dumps({"inputs": TYPED}), "expected a map"),
        (cbor2.dumps({1: 2, "inputs": {}}), "expected a map"),
        (cbor2.dumps({"inputs": {}}), "'x' is missing"),
        (inputs(TYPED, z=1), "'z' is unknown"),
        (cbor2.dumps({"inputs": {"x": TYPED, 5: 1}}), "a key is an integer"),
        (bytes.fromhex("a266696e70757473a061789fff"), "expected a map"),
        (bytes.fromhex("a166696e70757473a2617801617801"), "'x' is given twice"),
        (bytes.fromhex("a166696e70757473a161780101"), "more than one item"),
        (bytes.fromhex("a166696e70757473a1617883010261" + "3203"), "numbers or booleans, got a text"),
        (bytes.fromhex("a166696e70757473a17f6178ff01"), "a key is a text"),  # in pieces
        (bytes.fromhex("a166696e70757473a161ff01"), "not valid CBOR: 'utf-8'"),
        (bytes.fromhex("bf66696e70757473a1617801"), "a map without its end"),
        (bytes.fromhex("bf66696e70757473bf617801ff"), "not valid CBOR"),  # one break for two maps
        (bytes.fromhex("bfff"), "not valid CBOR"),
        (bytes.fromhex("bc"), "byte 0xbc at 0"),  # a reserved length
        (bytes.fromhex("a166696e70757473a1617881ff"), "input 'x': "),  # a break where an item belongs
        (inputs([[[1, 2, {"a": 1}], [4, 5, 6]]]), "numbers or booleans, got a map"),
        (inputs(cbor2.CBORTag(40, [[1] * 33, TYPED])), "more than 32 dimensions"),
        (bytes.fromhex("a166696e70757473a16178d8289f8101d85540" + "01ff"), "and no more"),
        (bytes.fromhex("a166696e70757473a16178d8555f40ff"), "of bytes, got a byte string"),  # in pieces
        (inputs(typed_array(VALUES.astype(np.float64))), "expected float32, got float64"),
        (inputs(typed_array(VALUES[:, :1])), "expected 24 bytes, got 12"),
        (inputs(cbor2.CBORTag(40, [[3, 2], TYPED])), "expected shape [1, 2, 3]"),
        (inputs(cbor2.CBORTag(40, [[1, 2, -3], TYPED])), "a size is a negative integer"),
        (inputs(cbor2.CBORTag(40, [[1, 2, True], TYPED])), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, [["1", 2, 3], TYPED])), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, [TYPED])), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, 5)), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, [[1, 2, 3], [1.0] * 6])), "expected a typed array"),
        (inputs(cbor2.CBORTag(83, bytes(96))), "expected a typed array"),  # float128
        (inputs(cbor2.CBORTag(85, "text")), "expected a typed array"),
        (inputs(VALUES.tobytes()), "numbers or booleans, got a byte string"),
        (inputs([[[1, 2, float("nan")], [4, 5, 6]]]), "got nan"),
        (inputs([[[1, 2, None], [4, 5, 6]]]), "got None"),
        (inputs([[[1, 2, 10**50], [4, 5, 6]]]), "numbers or booleans, got tag 2"),
        (b"\x81" * 60_000, "expected a map"),
        (bytes.fromhex("a166696e70757473a16178") + b"\x81" * 1_500, "not valid CBOR"),  # nesting
        (bytes.fromhex("a166696e70757473a16178") + b"\x9f" * 1_500, "not valid CBOR"),
        (bytes.fromhex("a166696e70757473a16178") + b"\x9a\x00\xff\xff\xff" * 300, "not valid CBOR"),
        (bytes.fromhex("a166696e70757473a161789bffffffffffffffff"), "not valid CBOR"),  # an array of 2^64 - 1
        (bytes.fromhex("a166696e70757473a16178d8555bffffffffffffffff"), "cut off"),  # a string of 2^64 - 1
        (bytes.fromhex("a166696e70757473bbffffffffffffffff617801"), "cut off"),  # a map of 2^64 - 1
        (bytes.fromhex("d9d9f7a166696e70757473a0"), "expected a map"),  # self-described
        (bytes.fromhex("a1666" + "96e70757473a16178d81c81d81d00"), "got tag 28"),  # a list within itself
    ],
)
def test_what_is_wrong_is_named(payload: bytes, text: str) -> None:
    """Every way to be wrong has its words, hostile lengths and tags included."""
    assert text in refused(payload)


def test_answers_are_tag_40_and_typed_arrays_by_name() -> None:
    """Shape and bits as RFC 8746 says, NaN passed on, bools as nested arrays, facts beside, hints left out."""
    outputs = [np.array([[0.5, np.nan]], np.float32), np.array([True, False])]
    signature = signature_for({"y": outputs[0], "flag": outputs[1]})
    body: Any = cbor2.loads(Cbor().encode(outputs, signature, {"key": "press-1", "$form": "columns", "outputs": 1}))
    assert set(body) == {"outputs", "key"}
    assert body["key"] == "press-1"
    assert same_bits(from_typed(body["outputs"]["y"]).astype(np.float32), outputs[0])
    assert body["outputs"]["flag"] == [True, False]


def test_classes_stand_beside_the_answer() -> None:
    """As in JSON."""
    output = np.array([[0.25, 0.75]], np.float32)
    signature = signature_for({"y": output}, postprocess=Postprocess(top_k=1), labels=("walk", "run"))
    body: Any = cbor2.loads(Cbor().encode([output], signature))
    assert body["classes"] == [[{"label": "run", "index": 1, "score": 0.75}]]


def test_a_fact_that_cbor_cannot_say_is_an_error() -> None:
    """It is answered INTERNAL, not raised."""
    with pytest.raises(RequestError) as caught:
        Cbor().encode([VALUES], signature_for({"x": VALUES}), {"fact": object()})
    assert caught.value.code is Code.INTERNAL


def test_an_empty_input_is_taken() -> None:
    """No elements, no bytes."""
    assert decode(cbor2.CBORTag(40, [[1, 0], cbor2.CBORTag(85, b"")]), np.empty((1, 0), np.float32)).size == 0


def hostile(tag: int, content: bytes) -> bytes:
    head = bytes([0xC0 | tag]) if tag < 24 else bytes([0xD8, tag]) if tag < 256 else b"\xd9" + tag.to_bytes(2, "big")
    return bytes.fromhex("a166696e70757473a16178") + head + content


BIGNUM = cbor2.dumps(random.Random(1).getrandbits(8 * 40_000))
FOREIGN = sorted({*range(300), 1004, 43000, 55799} - {40, *TYPED_ARRAYS})


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What cbor2 is given to decode; it is not decoded."""
    given: list[bytes] = []

    def loads(data: bytes) -> object:
        given.append(data)
        raise cbor2.CBORDecodeError("not here")

    monkeypatch.setattr(cbor2, "loads", loads)
    monkeypatch.setattr(cbor2, "load", lambda stream: loads(stream.read()))
    return given


@pytest.mark.parametrize("content", [b"\x82\x00" + BIGNUM, b"\x82\x01\x02", b"\x61*", b"\x00", BIGNUM])
def test_no_foreign_tag_reaches_cbor2(content: bytes, seen: list[bytes]) -> None:
    """Decimal fractions, big floats, rationals, patterns, dates, bignums, ...: refused by name, wherever they stand."""
    for tag in FOREIGN:
        for payload in (hostile(tag, content), hostile(40, b"\x82" + hostile(tag, content)[11:])):
            assert f"tag {tag}" in refused(payload) or "tag 40 must hold" in refused(payload)
        within = refused(bytes.fromhex("a166696e70757473a1617882") + hostile(tag, content)[11:] + b"\x01")
        assert within.endswith(f"got tag {tag}")
    assert all(set(data) <= set(b"\x82\x60") for data in seen)


def test_keys_that_are_no_names_never_reach_a_dictionary(seen: list[bytes]) -> None:
    """Integers that all hash to 0, as keys of either map, or of one within a tensor: refused at the first."""
    colliding = {(2**61 - 1) * i: 0 for i in range(1, 4_000)}
    assert "expected a map" in refused(cbor2.dumps(colliding))
    assert "a key is" in refused(cbor2.dumps({"inputs": colliding}))
    assert "got a map" in refused(inputs(colliding))
    assert "got a map" in refused(inputs([[colliding]]))
    assert all(set(data) <= set(b"\x81\x82\x60") for data in seen)


@pytest.mark.parametrize(
    "dumped", [b"\x85\x80\x81\x00\x80", b"\x9a\xff\xff\xff\xff", b"\x01\x02", b"\x81", b"\x9f\x01"]
)
def test_one_item_is_one_item(dumped: bytes) -> None:
    """Two items, half an item, lengths that promise more: nothing passes for a tensor, nor swallows what follows."""
    whole = bytes.fromhex("a166696e70757473a26178") + dumped + cbor2.dumps("z") + cbor2.dumps([[1.0]])
    signature = signature_for({"x": np.zeros((), np.float32), "z": np.zeros((1, 1), np.float32)})
    with pytest.raises(RequestError, match=r"input 'x': (not valid CBOR|expected)"):
        Cbor().decode(whole, signature, empty_inputs(signature))


def test_indefinite_lengths_are_taken() -> None:
    """As encoders that stream write them: both maps, nested arrays, tag 40 and its dimensions (RFC 8949, 3.2.2)."""
    start, typed = b"\xbf" + cbor2.dumps("inputs") + b"\xbf" + cbor2.dumps("x"), cbor2.dumps(TYPED)
    rows = [b"\x9f" + b"".join(map(cbor2.dumps, row)) + b"\xff" for row in VALUES[0].tolist()]
    for tensor in (
        b"\x9f\x9f" + b"".join(rows) + b"\xff\xff",
        b"\xd8\x28\x9f\x9f\x01\x02\x03\xff" + typed + b"\xff",
        typed,
    ):
        signature = signature_for({"x": VALUES})
        into = empty_inputs(signature)
        Cbor().decode(start + tensor + b"\xff\xff", signature, into)
        assert same_bits(into[0], VALUES)


@given(st.recursive(st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats(), st.lists))
def test_any_nested_arrays_are_read_as_cbor2_reads_them(value: object) -> None:
    """The check before cbor2 refuses nothing it should take, whatever the widths of heads and the depths."""
    read = cborform.read(memoryview(inputs(value)), signature_for({"x": VALUES}))["x"]
    assert repr(read) == repr(cbor2.loads(cbor2.dumps(value)))  # repr: NaN is not itself


def test_many_small_items_do_not_reach_cbor2(seen: list[bytes]) -> None:
    """A model of many elements allows many bytes; empty arrays, a byte each, are counted before they become lists."""
    array = np.zeros((1, 10_000), np.float64)
    payload = bytes.fromhex("a166696e70757473a161789a00013880") + b"\x80" * 80_000
    assert len(payload) < 90_000  # as a full request would have
    with pytest.raises(RequestError, match="many more than its 10004 numbers"):
        Cbor().decode(payload, signature_for({"x": array}), empty_inputs(signature_for({"x": array})))
    assert seen == []


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_another_number_of_rows_is_named(rows: int) -> None:
    """A few times too many values are still told by their shape."""
    message = refused(inputs(np.zeros((rows, 3, 3)).tolist()))
    assert f"got [{rows}, 3, 3]" in message


def test_as_many_items_as_the_input_has_are_taken() -> None:
    """The longest form of each shape: indefinite arrays, a break for each; more than are checked at once."""

    def written(value: Any) -> bytes:
        return b"\x9f" + b"".join(map(written, value)) + b"\xff" if isinstance(value, list) else cbor2.dumps(value)

    for shape in ((1, 5_000), (5_000, 1), (7, 1, 1, 1, 800), (1, 1100, 6)):
        array = np.random.default_rng(0).random(shape)
        signature = signature_for({"x": array})
        into = empty_inputs(signature)
        Cbor().decode(bytes.fromhex("a166696e70757473a16178") + written(array.tolist()), signature, into)
        assert same_bits(into[0], array)


def test_a_typed_array_is_not_copied() -> None:
    """8 MB in a typed array cost less than 1 MB besides."""
    array = np.ones((1, 2_000_000), np.float32)
    payload, signature = inputs(typed_array(array)), signature_for({"x": array})
    into = empty_inputs(signature)
    tracemalloc.start()
    Cbor().decode(payload, signature, into)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert same_bits(into[0], array)
    assert peak < 1_000_000


def test_a_payload_beyond_the_models_inputs_is_not_parsed(seen: list[bytes]) -> None:
    """Size and bound are said; the longest heads for every element and every array are within it."""
    message = refused(bytes.fromhex("a166696e70757473a161789a00ffffff") + b"\x80" * 200_000)
    assert message.startswith("a payload of 200016 bytes")
    assert "at most 65" in message
    assert seen == []
    array = np.full((1, 20, 300, 2), 1.1)
    longest = b"\x9b" + (300).to_bytes(8, "big") + (b"\x9b" + (2).to_bytes(8, "big") + cbor2.dumps(1.1) * 2) * 300
    tensor = b"\x9b" + (1).to_bytes(8, "big") + b"\x9b" + (20).to_bytes(8, "big") + longest * 20
    common.refuse_too_large(len(tensor), signature_for({"x": array}), text=False)
