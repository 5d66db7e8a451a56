"""What a bundle asks to be done with an output: softmax in every codec, the best classes beside JSON and CBOR answers.

The converter checks that what a bundle asks fits its outputs; a bundle made otherwise gets FAILED_PRECONDITION.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edged import quant
from edged.bundle import Signature
from edged.errors import Code, RequestError

Array = npt.NDArray[Any]


def apply(outputs: Sequence[Array], signature: Signature) -> Sequence[Array]:
    """Return the outputs with softmax where the bundle asks for it; otherwise the very objects given.

    An output that the client gets as integers is left as it is: probabilities have no place in its scale.
    """
    if not signature.postprocess.softmax:
        return outputs
    at = _target(signature)
    if outputs[at].dtype.kind != "f":
        return outputs
    changed = list(outputs)
    changed[at] = softmax(outputs[at])
    return changed


def softmax(logits: Array) -> Array:
    """Return exp(x) / sum(exp(x)) over the last axis, in the dtype given.

    The largest value is taken off first, so that exp cannot overflow (Blanchard, Higham and Higham, "Accurately
    computing the log-sum-exp and softmax functions", IMA J. Numer. Anal. 41(4), 2021). NaN stays NaN.
    """
    with np.errstate(invalid="ignore"):
        shifted: Array = logits - logits.max(axis=-1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=-1, keepdims=True)
    return shifted


def classes(outputs: Sequence[Array], signature: Signature) -> list[list[dict[str, object]]]:
    """Return per row (all axes but the last, flattened) the `top_k` best classes, best first; [] when `top_k` is 0.

    A class is `{"label", "index", "score"}`, without "label" where the bundle has none for it. Equal scores stand in
    index order; a score below `threshold` is left out, so a row may be empty. A quantized output is scored by its real
    values.
    """
    post = signature.postprocess
    if not post.top_k:
        return []
    at = _target(signature)
    spec, output = signature.outputs[at], outputs[at]
    quantized = output.dtype.kind in "iu" and spec.scale != 0.0
    scores = quant.dequantize(output, spec) if quantized else output
    rows = scores.astype(np.float64).reshape(-1, scores.shape[-1])
    best = np.argsort(-rows, axis=-1, kind="stable")[:, : post.top_k]
    return [
        [_class(int(i), float(row[i]), signature.labels) for i in order if row[i] >= post.threshold]
        for row, order in zip(rows, best, strict=True)
    ]


def _class(index: int, score: float, labels: Sequence[str]) -> dict[str, object]:
    label: dict[str, object] = {"label": labels[index]} if index < len(labels) else {}
    return label | {"index": index, "score": score}


def _target(signature: Signature) -> int:
    """Return the place of the output that `postprocess` is about."""
    wanted, names = signature.postprocess.output, [spec.name for spec in signature.outputs]
    at = names.index(wanted) if wanted in names else 0 if not wanted and len(names) == 1 else None
    if at is None or not signature.outputs[at].shape or not signature.outputs[at].shape[-1]:
        what = f"the bundle's postprocessing asks for output {wanted!r}; it has {', '.join(map(repr, names))}"
        raise RequestError(Code.FAILED_PRECONDITION, what)
    return at
