"""Every column of an output is right by its own scale, and honest half precision is not blamed for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.tinymodel import spec

from edged.engines.agreement import Compared
from edged.engines.base import Array

BOXES, SCORES = 4, 6
INPUTS = 12


class Net:
    """Two layers and a head, computed in any precision: each step is rounded to `dtype`, as an accelerator does."""

    def __init__(self, head: Callable[[Array], Array], columns: int, seed: int = 5) -> None:
        rng = np.random.default_rng(seed)
        self.first, self.second = rng.normal(size=(16, 32)) / 4, rng.normal(size=(32, columns)) / 6
        if head is cancelling:
            self.second[:, 1] = self.second[:, 0] + rng.normal(size=32) / 20_000
        self.head, self.x = head, rng.uniform(0, 1, (INPUTS, 1, 16))

    def answers(self, dtype: Any, turned: int = 1) -> Array:
        """float32 [inputs, 1, columns]. turned: -1 sums in the opposite order, as another honest kernel does."""
        hidden = self._product(self.x, self.first, dtype, turned)
        out = self._product(np.maximum(hidden, 0), self.second, dtype, turned)
        made = self.head(out).astype(np.float32)
        if dtype is np.float16:  # accelerators flush what is not normal
            made[np.abs(made) < 2.0**-14] = 0
        return made

    @staticmethod
    def _product(x: Array, weights: Array, dtype: Any, turned: int) -> Array:
        total = np.zeros((*x.shape[:-1], weights.shape[1]), dtype)
        for index in list(range(len(weights)))[::turned]:
            total += x[..., index : index + 1].astype(dtype) * weights[index].astype(dtype)
        return total


def detector(out: Array) -> Array:
    """Four coordinates in pixels beside six scores."""
    boxes = out[..., :BOXES] * out.dtype.type(400)
    return np.concatenate([boxes, 1 / (1 + np.exp(-6 * out[..., BOXES:]))], axis=-1)


def softmax(out: Array) -> Array:
    """Of steep logits, so that most columns are tails, down to what half precision does not hold."""
    steep = out * out.dtype.type(16)
    powers = np.exp(steep - steep.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def cancelling(out: Array) -> Array:
    """The last column is what is left of two large sums."""
    large = out * out.dtype.type(256)
    return np.concatenate([large[..., 2:], large[..., :1] - large[..., 1:2]], axis=-1)


def one_hot(out: Array) -> Array:
    """0 or 1, beside pixels."""
    return np.concatenate([out[..., :4] * out.dtype.type(400), (out[..., 4:] > 0.1)], axis=-1).astype(out.dtype)


def constant(out: Array) -> Array:
    """The first column is always 3, the second always 0."""
    fixed = np.zeros_like(out[..., :2])
    fixed[..., 0] = 3
    return np.concatenate([fixed, out[..., 2:] * out.dtype.type(400)], axis=-1)


HEADS = (detector, softmax, cancelling, one_hot, constant)


def judged(found: Array, wanted: Array, default: Array | None, golden: bool = False, given: float = 0.0) -> Any:
    """Compare [inputs, …] by inputs that nobody chose, or as golden samples beside random inputs that say nothing."""
    one = Compared(spec("y", wanted.shape[1:]), given)
    for index in range(len(wanted)):
        if golden:
            one.add_known(found[index], wanted[index])
        one.add(wanted[index] if golden else found[index], wanted[index], None if default is None else default[index])
    return one.worst()


@pytest.mark.parametrize("known", [True, False], ids=["two CPU kernels", "one CPU kernel"])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("golden", [False, True])
def test_honest_half_precision_agrees(head: Any, golden: bool, known: bool) -> None:
    """Twelve inputs through layers whose every sum is rounded to half precision, for each kind of output."""
    if head is cancelling and not known:
        pytest.skip("only the kernels' difference tells that the column is what is left of large numbers")
    for seed in range(8):
        net = Net(head, 12, seed)
        wanted, default = net.answers(np.float32), net.answers(np.float32, -1)
        half = net.answers(np.float16)
        given = float(np.abs(half - wanted).max()) if head is one_hot else 0.0
        found = judged(half, wanted, default if known else None, golden, given)
        assert found.ratio <= 1, (seed, found)


@pytest.mark.parametrize("head", HEADS)
def test_the_other_kernels_of_the_cpu_agree(head: Any) -> None:
    """They add in another order, in float32."""
    net = Net(head, 12)
    wanted, default = net.answers(np.float32), net.answers(np.float32, -1)
    assert judged(default, wanted, default).ratio < 0.5


@pytest.mark.parametrize("known", [True, False], ids=["two CPU kernels", "one CPU kernel"])
def test_units_that_are_nearly_dead_agree(known: bool) -> None:
    """Behind a ReLU that one of twelve inputs passes by a hair: that value tells nothing of the column's scale."""
    for seed in range(8):
        net = Net(np.asarray, 12, seed)
        wanted, default, half = net.answers(np.float32), net.answers(np.float32, -1), net.answers(np.float16)
        dead = np.where(np.arange(12) % 2, wanted.max(axis=0) - 1e-5, 0)
        wanted, default, half = (np.maximum(values - dead, 0) for values in (wanted, default, half))
        found = judged(half, wanted, default if known else None)
        assert found.ratio <= 1, (seed, found)


def steady() -> Array:
    """A column within ± 8, one of .5 ± .001."""
    rng = np.random.default_rng(1)
    return (rng.uniform(-1, 1, (INPUTS, 1, 2)) * [8, 0.001] + [0, 0.5]).astype(np.float32)


@pytest.mark.parametrize(
    ("differ", "agrees"), [(None, True), ((1e-6, 0), True), ((1e-6, 1e-6), True), ((1e-6, 1e-9), False)]
)
def test_the_cpus_two_kernels_tell_what_a_column_may_be_off(differ: Any, agrees: bool) -> None:
    """Off by .02 beside 6 is honest for a column that was computed from numbers like 6, or of which nothing is known.

    It is not for one in which the kernels differ by a thousandth of what they do in the other.
    """
    wanted = steady().astype(np.float64)
    found = wanted + np.array([0, 0.02])
    default = None if differ is None else wanted + np.array(differ)
    assert (judged(found, wanted, default).ratio <= 1) == agrees


def test_a_column_around_zero_may_be_off_by_a_rounding_of_the_largest_number() -> None:
    """Off by .0025 where it holds ± .001, and nothing is known of it: 2^-11 of the largest number, 5.9, is .0029."""
    wanted = steady() - np.float32([0, 0.5])
    assert judged(wanted + np.float32([0, 0.0025]), wanted, None).ratio < 1
    assert judged(wanted + np.float32([0, 0.0035]), wanted, None).ratio > 1


def test_no_column_is_allowed_more_than_the_whole() -> None:
    """A golden sample's error of .1, in a column that spans 16."""
    wanted = steady()
    assert judged(wanted + np.float32([0.1, 0]), wanted, None, golden=True).ratio > 1


def doubled(values: Array, column: int) -> Array:
    return np.asarray(values[..., column] * 2)


def negated(values: Array, column: int) -> Array:
    return np.asarray(-values[..., column])


def another(values: Array, column: int) -> Array:
    return np.asarray(values[..., column + 1 if column < BOXES + SCORES - 1 else BOXES])


def one_more(values: Array, column: int) -> Array:
    return np.asarray(values[..., column] + 1)


@pytest.mark.parametrize("known", [True, False], ids=["two CPU kernels", "one CPU kernel"])
@pytest.mark.parametrize("golden", [False, True])
@pytest.mark.parametrize("wrong", [doubled, negated, another, one_more])
@pytest.mark.parametrize("column", [BOXES, BOXES + SCORES - 1])
def test_a_score_beside_pixels_is_not_wrong_unseen(wrong: Any, column: int, golden: bool, known: bool) -> None:
    """By 100 %, by its sign, by another column's values: all far within what the pixels are allowed."""
    net = Net(detector, BOXES + SCORES)
    wanted = net.answers(np.float32)
    found = wanted.copy()
    found[..., column] = wrong(wanted, column)
    allowed = 2.5  # of the whole: a bundle's tolerance of a share of the largest pixel
    assert np.abs(found - wanted).max() < allowed
    worst = judged(found, wanted, net.answers(np.float32, -1) if known else None, golden, allowed)
    assert worst.ratio > 1
    assert f"output 'y', column {column} (" in worst.text


def test_a_constant_column_is_judged_by_its_value() -> None:
    """3 beside pixels: half of it too much is wrong."""
    net = Net(constant, 12)
    wanted = net.answers(np.float32)
    found = wanted.copy()
    found[..., 0] = 4.5
    assert judged(found, wanted, net.answers(np.float32, -1), given=2.5).ratio > 1


def test_channels_may_come_first() -> None:
    """[1, 10, positions]: with more positions than a tensor has columns, the second axis is judged."""
    rng = np.random.default_rng(2)
    scale = np.array([[640.0]] * BOXES + [[1.0]] * SCORES)
    wanted = (rng.random((4, 1, BOXES + SCORES, 600)) * scale).astype(np.float32)
    found = wanted.copy()
    found[:, :, BOXES + 1] *= 2
    worst = judged(found, wanted, None)
    assert worst.ratio > 1
    assert "column 5 (" in worst.text


def test_a_quantized_column_may_always_be_two_steps_off() -> None:
    """Even where it spans only three; four are too much, though the bundle allows six."""
    of = spec("y", (1, 2), "int8", scale=0.5, io="quantized")
    wanted = np.array([[[-100, 1]], [[100, 4]]], np.int8)
    for steps, agrees in ((2, True), (4, False)):
        one = Compared(of, 6.0)
        for row in wanted:
            one.add(row + np.array([[0, steps]], np.int8), row, row)
        assert (one.worst().ratio <= 1) == agrees


def test_numbers_that_are_none_do_not_count() -> None:
    """Where the reference is NaN or infinite there is nothing to compare, in columns too."""
    wanted = np.array([[[np.nan, np.inf, 1.0]], [[np.nan, 5.0, 2.0]]], np.float32)
    found = np.where(np.isfinite(wanted), wanted, 7).astype(np.float32)
    assert judged(found, wanted, None).ratio == 0
