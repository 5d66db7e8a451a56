"""Class numbers, indices, flags: a few may be others, no element always is, and none is garbage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edged.engines.agreement_classes import Classes
from edged.engines.base import Array


def judged(found: Array, wanted: Array, default: Array | None = None) -> Any:
    one = Classes(wanted.shape[1:])
    for index in range(len(wanted)):
        one.add(found[index], wanted[index], None if default is None else default[index])
    return one.worst()


def answers(inputs: int = 8, elements: int = 20) -> Array:
    return np.random.default_rng(3).integers(0, 9, (inputs, elements)).astype(np.int64)


def test_an_element_that_is_always_another_does_not_agree() -> None:
    """One in twenty is within a tenth, and is wrong all the same; so is one that is wrong for most inputs."""
    wanted = answers()
    found = wanted.copy()
    found[:, 7] = (wanted[:, 7] + 1) % 9
    share, text = judged(found, wanted)
    assert share > 1
    assert text == "1 of the elements differ for most inputs: [7] for 8 of 8"
    found[:3] = wanted[:3]
    assert judged(found, wanted)[0] > 1


def test_as_many_here_and_there_do() -> None:
    """A flip in every input, at another element each time."""
    wanted = answers()
    found = wanted.copy()
    for index in range(8):
        found[index, 2 * index] += 1
    assert judged(found, wanted)[0] == pytest.approx(0.5)


def test_half_of_the_inputs_is_not_most_and_three_inputs_are_too_few() -> None:
    """Two answers to two inputs that lie near one border are no evidence."""
    wanted = answers()
    found = wanted.copy()
    found[:4, 7] += 1
    assert judged(found, wanted)[0] <= 1
    found[:, 7] = wanted[:, 7] + 1
    assert judged(found[:3], wanted[:3])[0] <= 1


def test_a_large_map_may_have_a_hundredth_on_a_border() -> None:
    """Where the inputs hardly matter; two in a hundred are too many."""
    wanted = answers(elements=1000)
    for stuck, agrees in ((10, True), (20, False)):
        found = wanted.copy()
        found[:, :stuck] += 1
        assert (judged(found, wanted)[0] <= 1) == agrees


@pytest.mark.parametrize("value", [-2, -(2**40), 65537, 2**31])
def test_a_number_that_no_model_means_never_agrees(value: int) -> None:
    """One element of one input, among the tenth that may be another."""
    wanted = answers()
    found = wanted.copy()
    found[2, 5] = value
    share, text = judged(found, wanted)
    assert share == np.inf
    assert text == f"{value} where the CPU has 0 to 8"


@pytest.mark.parametrize("value", [-1, 905, 65536])
def test_another_class_than_any_that_was_seen_may_be_right(value: int) -> None:
    """Few inputs do not show all classes, and -1 is a usual word for none."""
    wanted = answers()
    found = wanted.copy()
    found[2, 5] = value
    assert judged(found, wanted)[0] <= 1


def test_large_and_negative_numbers_are_judged_by_the_references() -> None:
    """16 times its largest, on both sides."""
    wanted = answers() - 100_000
    found = wanted.copy()
    found[2, 5] = 1_500_000
    assert judged(found, wanted)[0] <= 1
    found[2, 5] = -1_700_000
    assert judged(found, wanted)[0] == np.inf


def test_flags_are_numbers_too() -> None:
    """Of dtype bool."""
    wanted = answers() > 4
    assert judged(wanted, wanted) == (0.0, "0.0% of the elements differ, tolerance 10.0%")
    assert judged(~wanted, wanted)[0] > 1


def test_what_the_cpus_own_kernels_differ_by_is_allowed_threefold_up_to_a_half() -> None:
    """A twentieth allows three of them; kernels that answer rubbish do not make everything right."""
    wanted = answers(4, 40)
    default, found = wanted.copy(), wanted.copy()
    default[:, :2] += 1
    for index in range(4):
        found[index, 5 * index : 5 * index + 5] += 1
    assert judged(found, wanted, default)[0] == pytest.approx(0.125 / 0.15)
    rubbish = wanted + 1
    share = judged(wanted + 2, wanted, rubbish)[0]
    assert share > 1
