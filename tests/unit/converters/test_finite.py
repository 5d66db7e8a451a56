"""Weights with NaN or Inf are named, with how many values there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from converters import finite
from edged.errors import BadDataError


@dataclass
class Type:
    is_floating: bool


class Variable:
    """As much of a tf.Variable as is looked at."""

    def __init__(self, name: str, value: Any) -> None:
        self.name, self._value = name, np.asarray(value)
        self.dtype = Type(self._value.dtype.kind == "f")

    def numpy(self) -> Any:
        return self._value


def test_good_weights_pass() -> None:
    """Floats of every size, an empty one and integers."""
    good = [np.float32([1, -3e38]), np.float16([65504]), np.zeros((0, 3), np.float32), np.int32([1]), np.float64(1)]
    finite.check_weights([Variable(str(i), value) for i, value in enumerate(good)], "m")


def test_bad_weights_are_named() -> None:
    """By name, with the number of NaN and Inf; of many, the first three."""
    bad = [Variable("b:0", np.float32([[np.nan, 1], [np.inf, -np.inf]])), Variable("a:0", np.float16([np.nan]))]
    says = r"m: has weights with NaN or Inf: a:0 \(1 NaN of 1\), b:0 \(1 NaN, 2 Inf of 4\) \("
    with pytest.raises(BadDataError, match=says):
        finite.check_weights([*bad, Variable("fine", np.float32([1]))], "m")
    with pytest.raises(BadDataError, match=r"v2 .*and 2 more"):
        finite.check_weights([Variable(f"v{i}", np.float32([np.inf])) for i in range(5)], "m")
