"""Choosing the tag set and the signature, without TensorFlow."""

from __future__ import annotations

import pytest

from converters import savedmodel
from edged.errors import BadDataError, UsageError

SERVE, TRAIN, EMPTY = frozenset({"serve"}), frozenset({"serve", "train"}), frozenset[str]()


def test_tag_sets() -> None:
    """`serve` by default, another by flag in any order of its tags; a wrong one lists what exists."""
    assert savedmodel.choose_tags([TRAIN, SERVE], "", "m") == SERVE
    assert savedmodel.choose_tags([TRAIN, SERVE], "train,serve", "m") == TRAIN
    with pytest.raises(UsageError, match=r"no tag set 'serve'; it has: serve,train \(choose one with --tags\)"):
        savedmodel.choose_tags([TRAIN], "", "m")


def test_the_empty_tag_set() -> None:
    """It is listed as the flag takes it: a comma."""
    with pytest.raises(UsageError, match=r"it has: , \(the empty set\); serve,train"):
        savedmodel.choose_tags([TRAIN, EMPTY], "", "m")
    assert savedmodel.choose_tags([TRAIN, EMPTY], ",", "m") == EMPTY


def test_signatures() -> None:
    """Asked for, serving_default, or the only one; never one of several."""
    assert savedmodel.choose_signature(["a", "serving_default"], "", "m") == "serving_default"
    assert savedmodel.choose_signature(["a", "serving_default"], "a", "m") == "a"
    assert savedmodel.choose_signature(["predict"], "", "m") == "predict"
    with pytest.raises(UsageError, match="several signatures: a, b"):
        savedmodel.choose_signature(["a", "b"], "", "m")
    with pytest.raises(UsageError, match=r"no signature 'predcit' \(did you mean 'predict'\?\); it has: predict"):
        savedmodel.choose_signature(["predict"], "predcit", "m")
    with pytest.raises(BadDataError, match="has no signature"):
        savedmodel.choose_signature([], "", "m")
