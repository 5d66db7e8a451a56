"""JSON as TensorFlow Serving speaks it, so that its clients work unchanged.

Source of the forms: https://www.tensorflow.org/tfx/serving/api_rest, "Predict API".
- Row form: `{"instances": [...]}`, one element per batch row: the value itself where the model has one input, else an
  object by input name. The answer is `{"predictions": [...]}`: plain values of one output, objects by name of several.
- Column form: `{"inputs": ...}`, a tensor where the model has one input, or an object by name; batch first. The answer
  is `{"outputs": ...}`: a tensor of one output, an object by name of several.
The answer has the request's form; one whose outputs share no batch dimension has no rows and is given in columns.
`signature_name` may be there and must then be the bundle's one signature. Numbers are written so that a float32 read
back is the same.
Beyond TF Serving: `classes` and the annotations stand beside the outputs as further keys, and in column form a leading
batch dimension of 1 may be left out, as in npy and CBOR.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NoReturn

import numpy as np

from edged import schema
from edged.bundle import Signature
from edged.codecs import nested
from edged.codecs.base import HINT, NO_ANNOTATIONS, Array
from edged.codecs.common import (
    all_finite,
    answer,
    describe,
    first_false,
    in_order,
    invalid,
    refuse_too_large,
    refuse_too_many,
)
from edged.errors import Code, RequestError
from edged.request import Buffer

FORM = HINT + "form"
COLUMNS = "columns"
_KEYS = frozenset({"instances", "inputs", "signature_name"})


class Json:
    """`application/json`, UTF-8."""

    name: ClassVar[str] = "json"
    content_type: ClassVar[str] = "application/json"
    reply_codec: ClassVar[str] = "json"

    def decode(self, payload: Buffer, signature: Signature, into: Sequence[Array]) -> Mapping[str, object] | None:
        """Fill `into`; raises INVALID_ARGUMENT as `nested.fill` does, and for anything but the two forms."""
        refuse_too_large(memoryview(payload).nbytes, signature, text=True)
        body = _parse(payload, signature)
        rows = "instances" in body
        values = _rows(body["instances"], signature) if rows else _columns(body["inputs"], signature)
        for value, spec, array in zip(values, signature.inputs, into, strict=True):
            nested.fill(value if rows else _batched(value, array.shape), spec, array)
        return None if rows else {FORM: COLUMNS}

    def encode(
        self, outputs: Sequence[Array], signature: Signature, annotations: Mapping[str, object] = NO_ANNOTATIONS
    ) -> bytes:
        """Serialise in the form the annotations' hint says; raises INTERNAL for NaN or Inf, which JSON cannot say."""
        for spec, output in zip(signature.outputs, outputs, strict=True):
            if not all_finite(output):
                what = f"output {spec.name!r} is not finite at {first_false(np.isfinite(output))}"
                raise RequestError(Code.INTERNAL, f"{what}: JSON cannot say that; ask for raw, npy or cbor")
        names = [spec.name for spec in signature.outputs]
        columns = annotations.get(FORM) == COLUMNS or not _have_rows(outputs)
        body = {"outputs": _out_columns(names, outputs)} if columns else {"predictions": _out_rows(names, outputs)}
        return _dump(answer(body, outputs, signature, annotations))


def _parse(payload: Buffer, signature: Signature) -> dict[str, Any]:
    try:
        text = str(payload, "utf-8")
        refuse_too_many(text.count("[") + text.count("{"), signature)
        body = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=schema.unique_pairs)
    except RecursionError:
        raise invalid("not valid JSON: nested too deeply") from None
    except ValueError as exc:  # not UTF-8, not JSON, a key given twice, an integer of thousands of digits
        raise invalid(f"not valid JSON: {str(exc)[:200]}") from exc
    if not isinstance(body, dict) or ("instances" in body) == ("inputs" in body):
        raise invalid('expected an object with either "instances" or "inputs"')
    unknown = sorted(set(body) - _KEYS)
    if unknown:
        raise invalid(f"unknown key {describe(unknown[0])}; known: {', '.join(sorted(_KEYS))}")
    name = signature.name
    if name and body.get("signature_name", name) != name:
        raise invalid(f"signature_name: the model has {name!r}, got {describe(body['signature_name'])}")
    return body


def _refuse_constant(token: str) -> NoReturn:
    msg = f"{token} is not a JSON number"
    raise ValueError(msg)


def _rows(instances: object, signature: Signature) -> list[object]:
    if not isinstance(instances, list):
        raise invalid(f'"instances": expected a list, one element per batch row, got {describe(instances)}')
    by_name = any(isinstance(instance, dict) for instance in instances)
    if not by_name and len(signature.inputs) == 1:
        return [instances]
    rows = [_row(instance, signature, f"instances[{i}]") for i, instance in enumerate(instances)]
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in signature.inputs]


def _row(instance: object, signature: Signature, where: str) -> list[object]:
    if not isinstance(instance, dict):
        raise invalid(f"{where}: expected an object by input name, got {describe(instance)}")
    return in_order(instance, signature, where)


def _columns(inputs: object, signature: Signature) -> list[object]:
    if isinstance(inputs, dict):
        return in_order(inputs, signature, "inputs")
    if len(signature.inputs) == 1:
        return [inputs]
    raise invalid(f'"inputs": expected an object by input name, got {describe(inputs)}')


def _batched(value: object, shape: tuple[int, ...]) -> object:
    """Return the value with the leading dimension of 1 that was left out, as npy and CBOR may leave it out."""
    depth, inner = 0, value
    while isinstance(inner, list) and depth < len(shape):
        depth, inner = depth + 1, inner[0] if inner else None
    return [value] if shape[:1] == (1,) and depth == len(shape) - 1 else value


def _have_rows(outputs: Sequence[Array]) -> bool:
    return all(output.ndim and output.shape[0] == outputs[0].shape[0] for output in outputs)


def _out_rows(names: Sequence[str], outputs: Sequence[Array]) -> list[Any]:
    # float32 -> Python float is exact, so the digits read back as the same float32.
    lists = [output.tolist() for output in outputs]
    if len(lists) == 1:
        return list(lists[0])
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def _out_columns(names: Sequence[str], outputs: Sequence[Array]) -> object:
    lists = [output.tolist() for output in outputs]
    return lists[0] if len(lists) == 1 else dict(zip(names, lists, strict=True))


def _dump(body: Mapping[str, object]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as exc:  # a complex output, or an annotation that is NaN or no JSON value
        raise RequestError(Code.INTERNAL, f"the answer cannot be said in JSON: {exc}") from exc
