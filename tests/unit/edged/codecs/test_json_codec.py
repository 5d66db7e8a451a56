"""JSON against TensorFlow Serving's documented forms; answers are read by the json module."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from support.codec_cases import empty_inputs

from edged.bundle import Postprocess, Signature, TensorSpec
from edged.codecs.json_codec import Json
from edged.errors import ERROR_PREFIX, Code, RequestError

X, Y = TensorSpec("x", "float32", (1, 3)), TensorSpec("y", "float32", (1, 2))
ONE = Signature((X,), (Y,))
PAIR = Signature(
    (TensorSpec("a", "float32", (2, 2)), TensorSpec("b", "int32", (2,))),
    (TensorSpec("p", "float32", (2, 2)), TensorSpec("q", "int32", (2,))),
)
OUT = [np.array([[0.5, -2.0]], np.float32)]
PAIR_OUT = [np.array([[1, 2], [3, 4]], np.float32), np.array([7, 8], np.int32)]


def decode(body: object, signature: Signature = ONE) -> tuple[list[Any], Any]:
    into = empty_inputs(signature)
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    hints = Json().decode(payload, signature, into)
    return [array.tolist() for array in into], hints


def message(body: object, signature: Signature = ONE) -> str:
    with pytest.raises(RequestError) as caught:
        decode(body, signature)
    assert caught.value.code is Code.INVALID_ARGUMENT
    return caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [[1, 2, 3]]},
        {"instances": [{"x": [1, 2, 3]}]},
        {"inputs": [[1, 2, 3]]},
        {"inputs": {"x": [[1, 2, 3]]}},
        {"signature_name": "serving_default", "instances": [[1.0, 2e0, 30e-1]]},
    ],
)
def test_one_input_in_each_form(body: dict[str, Any]) -> None:
    """The value itself or by name, in rows or in columns."""
    assert decode(body)[0] == [[[1.0, 2.0, 3.0]]]


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"a": [1, 2], "b": 5}, {"b": 6, "a": [3, 4]}]},
        {"inputs": {"b": [5, 6], "a": [[1, 2], [3, 4]]}},
    ],
)
def test_several_inputs_in_each_form(body: dict[str, Any]) -> None:
    """By name, in any order; a row holds each input without its batch dimension."""
    assert decode(body, PAIR)[0] == [[[1, 2], [3, 4]], [5, 6]]


@pytest.mark.parametrize(
    ("request_body", "signature", "outputs", "answer"),
    [
        ({"instances": [[1, 2, 3]]}, ONE, OUT, {"predictions": [[0.5, -2.0]]}),
        ({"inputs": [[1, 2, 3]]}, ONE, OUT, {"outputs": [[0.5, -2.0]]}),
        (
            {"instances": [{"a": [1, 2], "b": 5}, {"a": [3, 4], "b": 6}]},
            PAIR,
            PAIR_OUT,
            {"predictions": [{"p": [1, 2], "q": 7}, {"p": [3, 4], "q": 8}]},
        ),
        (
            {"inputs": {"a": [[1, 2], [3, 4]], "b": [5, 6]}},
            PAIR,
            PAIR_OUT,
            {"outputs": {"p": [[1, 2], [3, 4]], "q": [7, 8]}},
        ),
    ],
)
def test_the_answer_has_the_requests_form(
    request_body: object, signature: Signature, outputs: list[Any], answer: object
) -> None:
    """Rows give `predictions`, columns `outputs`; one output stands alone, several by name. The hint is not sent."""
    hints = decode(request_body, signature)[1]
    assert json.loads(Json().encode(outputs, signature, hints or {})) == answer


def test_outputs_without_a_common_batch_are_given_in_columns() -> None:
    """There are no rows to give; the answer is complete all the same."""
    signature = Signature((X,), (TensorSpec("p", "float32", (2,)), TensorSpec("q", "float32", ())))
    encoded = Json().encode([np.array([1, 2], np.float32), np.array(3, np.float32)], signature)
    assert json.loads(encoded) == {"outputs": {"p": [1, 2], "q": 3}}


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", "not valid JSON"),
        (b"\xff\xfe", "utf-8"),
        (json.dumps({"instances": [[1, 2, 3]]}).encode("utf-16"), "not valid JSON"),
        (b"[1, 2, 3]", "expected an object"),
        (b"{}", "expected an object with either"),
        (b'{"instances": [[1,2,3]], "inputs": [[1,2,3]]}', "either"),
        (b'{"instances": [[1,2,3]], "instances": [[1,2,3]]}', "given twice"),
        (b'{"instances": [[1,2,3]], "id": 5}', "unknown key 'id'"),
        (b'{"instances": [[1,2,3]]} x', "Extra data"),
        (b'{"instances": [[1,2,3', "not valid JSON"),
        (b'{"instances": [[1,NaN,3]]}', "NaN is not a JSON number"),
        (b'{"instances": [[1,-Infinity,3]]}', "-Infinity is not"),
        (b'{"instances": [[1,1e999,3]]}', "'x' at [0][1]"),
        (b'{"instances": [[1,1e39,3]]}', "at most 3.40282e+38"),
        (b'{"instances": [[1,' + b"9" * 5000 + b",3]]}", "not valid JSON"),
        (b'{"instances": ' + b"[" * 1_020, "nested too deeply"),
        (b'{"instances": ' + b'{"a":' * 1_020, "nested too deeply"),
        (b'{"instances": ' + b"[" * 30_000, "30001 lists and objects; the model's inputs are 'x', which have at most"),
        (b'{"instances": ' + b'{"a":' * 9_000, "9001 lists and objects"),
        (b'{"instances": [' + b"[]," * 5_000 + b"[]]}", "5003 lists and objects"),
        (
            b'{"instances": [' + b"1," * 40_000 + b"1]}",
            "a payload of 80018 bytes; the model's inputs are 'x', which take",
        ),
        (b'{"instances": {"x": [1,2,3]}}', '"instances": expected a list'),
        (b'{"instances": [{"x": [1,2,3]}, [1,2,3]]}', "instances[1]: expected an object"),
        (b'{"instances": [{"y": [1,2,3]}]}', "instances[0]: 'x' is missing, 'y' is unknown"),
        (b'{"inputs": {"x": [[1,2,3]], "z": 1}}', "inputs: 'z' is unknown; the model's inputs are 'x'"),
        (b'{"instances": []}', "expected shape [1, 3], got [0]"),
        (b'{"instances": [[1,2,3],[1,2,3]]}', "expected shape [1, 3], got [2, 3]"),
        (b'{"instances": [{"b64": "AAAA"}]}', "'b64' is unknown"),
        (b'{"instances": [[{"b64": "AAAA"},2,3]]}', "base64 is for strings"),
        (b'{"instances": [[true,2,3]]}', "expected a number (float32), got True"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(payload: bytes, text: str) -> None:
    """Every way a request can be wrong has its own words, and none escapes as another exception."""
    assert text in message(payload)


def test_several_inputs_need_names() -> None:
    """Values without names cannot be told apart."""
    assert "instances[0]: expected an object" in message({"instances": [[1, 2], [3, 4]]}, PAIR)
    assert '"inputs": expected an object' in message({"inputs": [[1, 2], [3, 4]]}, PAIR)
    assert "expected shape [2, 2], got [0]" in message({"instances": []}, PAIR)


@pytest.mark.parametrize("value", [0.1, 1e-45, 3.4028235e38, -0.0, 16777217.0, 1 / 3])
def test_a_float32_is_read_back_as_the_same_float32(value: float) -> None:
    """Through another parser, bit for bit."""
    sent = np.array([[value, 1.0]], np.float32)
    back = np.array(json.loads(Json().encode([sent], ONE))["predictions"], np.float32)
    assert back.tobytes() == sent.tobytes()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_outputs_that_json_cannot_say_are_an_error(bad: float) -> None:
    """A model that answers NaN is reported, naming the output; no invalid JSON leaves the device."""
    with pytest.raises(RequestError, match=r"output 'y' is not finite at \[0, 1\]") as caught:
        Json().encode([np.array([[0.0, bad]], np.float32)], ONE)
    assert caught.value.code is Code.INTERNAL


@pytest.mark.parametrize("fact", [float("nan"), object()])
def test_an_annotation_that_json_cannot_say_is_an_error(fact: object) -> None:
    """It is answered INTERNAL, not raised."""
    with pytest.raises(RequestError) as caught:
        Json().encode(OUT, ONE, {"fact": fact})
    assert caught.value.code is Code.INTERNAL


def test_annotations_stand_beside_the_answer() -> None:
    """Facts become keys; they replace none, begin no answer like an error, and hints stay inside."""
    facts = {"error": {"code": "x"}, "key": "press-1", "predictions": "gone", "$other": 1}
    encoded = Json().encode(OUT, ONE, facts)
    assert json.loads(encoded) == {"predictions": [[0.5, -2.0]], "error": {"code": "x"}, "key": "press-1"}
    assert not encoded.startswith(ERROR_PREFIX)


def test_classes_stand_beside_the_answer() -> None:
    """Where the bundle asks for them, with labels and in order of score."""
    signature = Signature((X,), (Y,), postprocess=Postprocess(top_k=2), labels=("walk", "run"))
    body = json.loads(Json().encode([np.array([[0.25, 0.75]], np.float32)], signature))
    run, walk = {"label": "run", "index": 1, "score": 0.75}, {"label": "walk", "index": 0, "score": 0.25}
    assert body == {"predictions": [[0.25, 0.75]], "classes": [[run, walk]]}


@pytest.mark.parametrize("given", ["other", 5, None])
def test_another_signatures_name_is_refused(given: object) -> None:
    """A bundle has one signature; asking for another must not be answered by it."""
    named = dataclasses.replace(ONE, name="serving_default")
    body = {"instances": [[1, 2, 3]], "signature_name": given}
    assert "the model has 'serving_default'" in message(body, named)


def test_what_is_too_large_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither many bytes nor many lists reach the parser, which cannot be interrupted."""
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("parsed"))
    for payload in (b'{"instances":[' + b"[]," * 200_000 + b"[]]}", b'{"instances":[' + b"[]," * 3_000 + b"[]]}"):
        assert "at most" in message(payload)


@pytest.mark.parametrize("shape", [(1, 1100, 6), (1, 1, 1, 1, 5_000), (1_500,), (300, 1, 1), ()], ids=str)
@pytest.mark.parametrize("indent", [None, 2, 4])
def test_pretty_printed_requests_are_taken_in_each_form(shape: tuple[int, ...], indent: int | None) -> None:
    """The longest numbers, one a line, deep in blanks, two inputs by name, rows and columns: decoded, not too large."""
    values = np.full(shape, -1.2345678901234567e-300)
    specs = tuple(TensorSpec(name * 60, "float64", shape) for name in ("a", "\N{WAVING HAND SIGN}"))
    signature = Signature(specs, (Y,))
    named = {spec.name: values.tolist() for spec in specs}
    bodies: list[object] = [{"inputs": named}]
    if shape:
        bodies.append({"instances": [dict.fromkeys(named, row) for row in values.tolist()]})
    for body in bodies:
        into = empty_inputs(signature)
        Json().decode(json.dumps(body, indent=indent).encode(), signature, into)
        assert all(array.tobytes() == values.tobytes() for array in into)
