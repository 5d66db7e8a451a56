"""NaN and infinity in a model's weights and constants, found before they become a model that answers nonsense.

Runs in the child process that has imported TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from edged.errors import BadDataError

_SHOWN = 3


def check_weights(variables: Iterable[Any], where: str) -> None:
    """Raise BadDataError naming the variables that hold NaN or infinity."""
    bad = sorted(found for v in variables if v.dtype.is_floating and (found := _found(v.name, v.numpy())))
    if bad:
        advice = "train it again from the last good checkpoint"
        raise BadDataError(where, f"has weights with NaN or Inf: {_listed(bad)}", advice)


def notes(concrete: Any, where: str) -> list[str]:
    """Return what to say about constants that hold infinity (a mask, often) or NaN: both may be meant."""
    bad = sorted({found for name, value in _constants(concrete) if (found := _found(name, value))})
    what = "the model may answer NaN; int8 and int16x8 have no such values and will answer wrongly"
    return [f"{where}: constants with NaN or Inf: {_listed(bad)}; {what}"] if bad else []


def _constants(concrete: Any) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Yield every float constant of a function and of all that it calls."""
    import tensorflow as tf  # noqa: PLC0415  # child process only

    graph = concrete.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    for node in nodes:
        if node.op == "Const" and tf.as_dtype(node.attr["dtype"].type).is_floating:
            yield node.name, tf.make_ndarray(node.attr["value"].tensor)
    for i, captured in enumerate(concrete.captured_inputs):
        if captured.dtype.is_floating:
            yield f"captured {i}", captured.numpy()


def _found(name: str, value: npt.NDArray[Any]) -> str:
    """Return the name with what it holds, "" for finite values. Of bfloat16 too, which numpy does not know."""
    value = np.asarray(value, np.float32) if value.dtype.kind == "V" else value
    nan, infinite = int(np.isnan(value).sum()), int(np.isinf(value).sum())
    parts = [f"{count} {word}" for count, word in ((nan, "NaN"), (infinite, "Inf")) if count]
    return f"{name} ({', '.join(parts)} of {value.size})" if parts else ""


def _listed(bad: list[str]) -> str:
    more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
    return ", ".join(bad[:_SHOWN]) + more
