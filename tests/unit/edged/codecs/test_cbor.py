"""CBOR against cbor2 and RFC 8746: each typed array in, what is no tensor refused, answers read by struct."""

from __future__ import annotations

from typing import Any

import cbor2
import numpy as np
import pytest
from support.codec_cases import Array, empty_inputs, from_typed, same_bits, signature_for, typed_array

from edged.bundle import Postprocess
from edged.codecs.cbor import TYPED_ARRAYS, Cbor
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
        (cbor2.dumps({"inputs": {"x": TYPED, 5: 1}}), "5 is unknown"),
        (inputs(typed_array(VALUES.astype(np.float64))), "expected float32, got float64"),
        (inputs(typed_array(VALUES[:, :1])), "expected 24 bytes, got 12"),
        (inputs(cbor2.CBORTag(40, [[3, 2], TYPED])), "expected shape [1, 2, 3]"),
        (inputs(cbor2.CBORTag(40, [[1, 2, -3], TYPED])), "expected shape"),
        (inputs(cbor2.CBORTag(40, [[1, 2, True], TYPED])), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, [["1", 2, 3], TYPED])), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, [TYPED])), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, 5)), "tag 40 must hold"),
        (inputs(cbor2.CBORTag(40, [[1, 2, 3], [1.0] * 6])), "expected a typed array"),
        (inputs(cbor2.CBORTag(83, bytes(96))), "expected a typed array"),  # float128
        (inputs(cbor2.CBORTag(85, "text")), "expected a typed array"),
        (inputs(VALUES.tobytes()), "expected shape [1, 2, 3], got []"),
        (inputs([[[1, 2, float("nan")], [4, 5, 6]]]), "got nan"),
        (inputs([[[1, 2, None], [4, 5, 6]]]), "got None"),
        (inputs([[[1, 2, 10**50], [4, 5, 6]]]), "integer of"),
        (bytes.fromhex("9bffffffffffffffff"), "not valid CBOR"),  # an array of 2^64 - 1
        (bytes.fromhex("5bffffffffffffffff"), "not valid CBOR"),  # a string of 2^64 - 1
        (b"\x81" * 100_000, "not valid CBOR"),  # nesting
        (bytes.fromhex("c5821b7fffffffffffffff01"), "not valid CBOR"),  # a big float beyond all bounds
        (bytes.fromhex("d81e820100"), "not valid CBOR"),  # 1/0
        (bytes.fromhex("d823612a"), "not valid CBOR"),  # a pattern that is none
        (bytes.fromhex("a1666" + "96e70757473a16178d81c81d81d00"), "expected shape"),  # a list within itself
    ],
    ids=range(32),
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
