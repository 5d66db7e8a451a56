"""What an output holds, told by the SavedModel's answers: it decides which figures and gates mean anything.

classes   scores of which the largest is the answer: softmax rows, or what labels or --postprocess say is so
perhaps   [batch, n] numbers that may be classes before a softmax, or may be a regression: nothing tells
frames    scores each of its own, all in 0 to 1: frames, detections, several labels at once
real      real numbers: a regression, boxes, an embedding
whole     whole numbers
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from converters.samples import Array

Kind = Literal["classes", "perhaps", "frames", "real", "whole"]

_CLASSES = range(2, 10_001)
# Answers are [count, *shape]: this is one of shape [batch, n].
_RANK = 3
# Softmax in float16 or float32 adds up to 1 within this.
_SUM = 1e-2


def alone(floats: Array) -> Kind:
    """Return what an output looks like by itself. floats: [count, *shape]."""
    if floats.dtype.kind != "f":
        return "whole"
    scores = floats.ndim >= _RANK and floats.shape[-1] in _CLASSES
    if floats.size and floats.min() >= 0 and floats.max() <= 1:
        softmax = scores and bool(np.allclose(floats.sum(-1, dtype=np.float64), 1.0, atol=_SUM))
        return "classes" if softmax else "frames"
    return "perhaps" if scores and floats.ndim == _RANK else "real"


def of(floats: Mapping[str, Array], classes: str = "", targets: str = "") -> dict[str, Kind]:
    """Return what every output holds. classes, targets: the output that is known to hold those, "" for none.

    Beside an output of classes the others that may be some are taken for real numbers: a detector has one that says
    what, and the others say where.
    """
    found = {name: alone(answers) for name, answers in floats.items()}
    if found.get(classes) in ("perhaps", "frames", "real"):
        found[classes] = "classes"
    if targets in found:
        found[targets] = "real"
    if "classes" in found.values():
        return {name: "real" if kind == "perhaps" else kind for name, kind in found.items()}
    return found
