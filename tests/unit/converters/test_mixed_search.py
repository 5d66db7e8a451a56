"""The search for layers to keep float, on models whose errors are known: every int8 layer adds its noise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from converters.mixed_graph import Layer
from converters.mixed_search import Search, Trial
from converters.report import NOT_RUN

_GATE = 20.0


class _Model:
    """A model of `count` layers. noise: layer → what it adds when it is int8; score = 100 - all noise, 80 passes.

    weights: layer → {constant: bytes}. A file has 1,000 bytes, a constant its bytes, and again as many where a float
    layer reads it and half as many where an int8 layer does: shared ones are there twice when both do.
    """

    def __init__(self, count: int, noise: Mapping[int, float], weights: Mapping[int, dict[int, int]] | None = None):
        self.layers = [
            Layer(
                f"l{i}",
                "CONV_2D",
                (f"l{i}",),
                weights=(weights or {}).get(i, {1000 + i: 400}),
                near=frozenset(n for n in (i - 1, i + 1) if 0 <= n < count),
            )
            for i in range(count)
        ]
        self.noise, self.asked = noise, list[tuple[str, ...]]()
        self.dead = set[frozenset[str]]()

    def make(self, floats: Sequence[Layer]) -> bytes:
        names = frozenset(layer.name for layer in floats)
        self.asked.append(tuple(sorted(names)))
        size = 1000
        for names_of, share in ((names, 2), (frozenset(layer.name for layer in self.layers) - names, 1)):
            read = {t: b for layer in self.layers if layer.name in names_of for t, b in layer.weights.items()}
            size += sum(read.values()) * share // 2
        return json.dumps(sorted(names)).ljust(size).encode()

    def measure(self, model: bytes) -> tuple[float, bool]:
        floats = frozenset(json.loads(model))
        if floats in self.dead:
            return NOT_RUN, False
        score = 100 - sum(noise for number, noise in self.noise.items() if f"l{number}" not in floats)
        return score, score >= 100 - _GATE


def _search(model: _Model, budget: int = 60, told: list[tuple[int, Trial]] | None = None) -> Search:
    found = Search(
        model.layers, model.make, model.measure, budget, lambda *told_: told.append(told_) if told is not None else None
    )
    found.run()
    return found


def _floats(search: Search) -> set[int]:
    return {int(name[1:]) for name in json.loads(search.model)}


def test_nothing_is_float_where_int8_passes() -> None:
    """One conversion is enough to know it, and no table is made."""
    found = _search(_Model(5, {2: 10}))
    assert (_floats(found), found.tried, found.costs()) == (set(), 1, ())
    assert found.best.passed
    assert found.uniform.score == 90


def test_the_one_layer_that_does_the_damage_is_found() -> None:
    """Layer 3 of 10 takes 50: it alone is float, comes first in the table, and the table knows what it costs."""
    found = _search(_Model(10, {3: 50, 7: 5}))
    assert _floats(found) == {3}
    costs = found.costs()
    assert [(cost.layer, cost.score, cost.gained, cost.kept_float) for cost in costs[:2]] == [
        ("l3", 50.0, 50.0, True),
        ("l7", 95.0, 5.0, False),
    ]
    assert costs[0].extra_bytes == 100
    assert not any(cost.kept_float for cost in costs[1:])


def test_layers_that_hide_each_other_are_all_found() -> None:
    """With any one of three bad layers float the score is as bad as before: only measuring them alone shows them."""
    found = _search(_Model(12, {1: 500, 5: 400, 9: 300}))
    assert _floats(found) == {1, 5, 9}


def test_small_damage_that_adds_up_is_cured_by_the_fewest_layers() -> None:
    """Ten layers take 5 each, the gate allows 20: six must be float, and no file with six is bettered."""
    found = _search(_Model(10, dict.fromkeys(range(10), 5.0)))
    assert len(_floats(found)) == 6
    assert found.best.score == 80


def test_bytes_decide_between_layers_of_like_damage() -> None:
    """Six layers take 8 each and four must be float: those of 40 bytes are, the two of 40,000 are int8."""
    found = _search(_Model(6, dict.fromkeys(range(6), 8.0), {n: {n: 40_000 if n < 2 else 40} for n in range(6)}))
    assert _floats(found) == {2, 3, 4, 5}


def test_what_is_not_needed_is_taken_back() -> None:
    """Layer 0 loses most for a byte and comes first; once 1 is float too, the gate passes without 0."""
    found = _search(_Model(3, {0: 1, 1: 2, 2: 19}, {0: {0: 4}, 1: {1: 400}, 2: {2: 40_000}}))
    assert _floats(found) == {1}


def test_layers_that_share_a_constant_go_back_together() -> None:
    """With one of 0 and 1 int8 their constant is there twice, and the file larger; with both it is smaller."""
    shared = {0: 4000}
    model = _Model(4, {0: 4, 1: 4, 2: 12, 3: 12}, {0: shared, 1: shared, 2: {2: 16_000}, 3: {3: 400_000}})
    assert _floats(_search(model)) == {2}


def test_a_weightless_layer_between_float_layers_is_float_with_them() -> None:
    """1 and 3 are kept float; 2 has no weights, and as int8 between them it would only convert there and back."""
    found = _search(_Model(6, {1: 50, 3: 50}, {2: {}}))
    assert _floats(found) == {1, 2, 3}
    assert {cost.layer for cost in found.costs() if cost.kept_float} == {"l1", "l2", "l3"}


def test_nothing_is_searched_where_the_float_model_fails() -> None:
    """No choice of layers cures what float does not pass: two conversions, the better file, no table."""
    model = _Model(5, {0: 10})
    model.noise = {0: 10, 99: 50}
    found = _search(model)
    assert (found.tried, found.best.passed, found.best.score) == (2, False, 50)


def test_a_long_graph_is_searched_from_coarse_to_fine() -> None:
    """200 layers and 40 tries: the three bad ones are float, and few of the others with them."""
    found = _search(_Model(200, {20: 100, 21: 100, 150: 60}), budget=40)
    assert _floats(found) >= {20, 21, 150}
    assert len(_floats(found)) <= 30
    assert found.tried <= 40
    assert sum(len(unit.layers) for unit in found.units) == 200


def test_a_mixture_comes_before_a_smaller_file_without_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a tiny model the conversions between int8 and float may weigh more than its weights; int8 was asked for."""
    model = _Model(3, {0: 50}, {0: {0: 4}, 1: {1: 4}, 2: {2: 4}})
    plain = model.make

    def make(floats: Sequence[Layer]) -> bytes:
        return plain(floats) + b" " * (500 if len(floats) < 3 else 0)

    monkeypatch.setattr(model, "make", make)
    assert _floats(_search(model)) == {0}


@pytest.mark.parametrize("budget", [1, 2, 3, 7, 20])
def test_the_budget_is_kept(budget: int) -> None:
    """No more conversions than asked for; from the second on there is a file that passes: all layers float."""
    model = _Model(50, {5: 100, 30: 100, 31: 100})
    found = _search(model, budget)
    assert found.tried == len(model.asked) <= budget
    assert found.best.passed == (budget > 1)


def test_two_searches_ask_the_same_and_find_the_same() -> None:
    """No set order, no time, no chance: the same files in the same order, the same table."""
    noise = {number: (number * 37 % 11) + 0.5 for number in range(40)}
    first, second = _Model(40, noise), _Model(40, noise)
    one, other = _search(first), _search(second)
    assert first.asked == second.asked
    assert (one.model, one.costs()) == (other.model, other.costs())


@pytest.mark.parametrize("count", [1, 2, 30])
def test_no_file_is_made_twice(count: int) -> None:
    """What was tried is remembered: conversions and runs cost seconds. Of one layer, all but it is none."""
    model = _Model(count, dict.fromkeys(range(count), 60.0 / count))
    _search(model)
    assert len(set(model.asked)) == len(model.asked)


def test_a_file_that_does_not_run_is_a_failed_candidate() -> None:
    """Every layer int8 kills the runtime: the search goes on, and finds the layer."""
    model = _Model(4, {2: 50})
    model.dead = {frozenset()}
    found = _search(model)
    assert (found.uniform.score, _floats(found)) == (NOT_RUN, {2})


def test_a_file_that_cannot_be_made_is_a_failed_candidate() -> None:
    """The quantizer refuses one choice of layers; the others are tried all the same."""
    model = _Model(4, {2: 50})

    def make(floats: Sequence[Layer]) -> bytes:
        if not floats:
            raise RuntimeError("cannot quantize")
        return model.make(floats)

    found = Search(model.layers, make, model.measure, 60, lambda *_: None)
    found.run()
    assert _floats(found) == {2}


def test_progress_is_told_with_the_best_so_far() -> None:
    """Tries are counted up, and once a file passes its size only shrinks."""
    told: list[tuple[int, Trial]] = []
    _search(_Model(10, {3: 50, 4: 30}), told=told)
    counts = [tried for tried, _ in told]
    sizes = [best.size for _, best in told if best.passed]
    assert counts == sorted(set(counts))
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1
