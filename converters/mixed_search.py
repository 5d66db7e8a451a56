"""Which layers to keep float: a search that knows neither TensorFlow nor a runtime, only files and scores.

1. Every layer int8. Passes: nothing is to be done. Every layer float. Fails: nothing can be done.
2. What each layer costs: the score with it alone in int8 and all others float. (The other way round, all int8 but one,
   shows nothing where two layers do the damage.) A long graph is measured in segments of consecutive layers, and the
   worst segments are halved.
3. The layers that cost most are kept float, as few of them as pass the gates.
4. What saves bytes is taken back, as long as the gates pass and the file gets smaller.

The budget counts conversions and the order is fixed, so the same layers, files and scores give the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from converters.mixed_graph import Layer, closed, described, float_bytes
from converters.report import NOT_RUN, LayerCost

# The share of the budget that goes into step 2, and into how many segments a long graph is cut at first.
_RANKING, _SEGMENTS = 0.6, 8
# A segment that passes alone is halved only where it takes this share of what all layers together take.
_WORTH = 0.05
# int8 weights against float16.
_SAVED = 4

Make = Callable[[Sequence[Layer]], bytes]
Measure = Callable[[bytes], tuple[float, bool]]


@dataclass(frozen=True)
class Trial:
    """One file: the layers that are float in it, its score, and whether every gate passes."""

    floats: frozenset[int]
    score: float
    passed: bool
    size: int


Tell = Callable[[int, Trial], object]


@dataclass(frozen=True)
class Unit:
    """Consecutive layers that were measured together: one int8 unit among float layers."""

    layers: tuple[int, ...]
    trial: Trial


class SpentError(Exception):
    """The budget is used up."""


class Search:
    """One search. After `run`: `best` and its file `model`, `uniform` (all int8), `units` with their costs.

    make: the file in which these layers are float; raises RuntimeError where there is none. measure: a
    file's score, higher is better, and whether it passes. tell: given the number of tries and the best of them.
    """

    def __init__(self, layers: Sequence[Layer], make: Make, measure: Measure, budget: int, tell: Tell) -> None:
        self.model, self.best = b"", Trial(frozenset(), NOT_RUN, passed=False, size=0)
        self.uniform, self.units = self.best, list[Unit]()
        self.tried = 0
        self._layers, self._make, self._measure, self._budget, self._tell = layers, make, measure, budget, tell
        self._known: dict[frozenset[int], Trial] = {}
        self._all = frozenset(range(len(layers)))
        self._whole = self.best

    def run(self) -> None:
        """Search until the last step is done or the budget is used up."""
        try:
            self.uniform = self._try(frozenset())
            if self.uniform.passed:
                return
            self._whole = self._try(self._all)
            if self._whole.passed:
                self._rank()
                self._take_back(self._assemble())
        except SpentError:
            pass

    def costs(self) -> tuple[LayerCost, ...]:
        """Return what each unit costs, worst first."""
        worst_first = sorted(self.units, key=lambda unit: (unit.trial.score, unit.layers))
        return tuple(self._cost(unit) for unit in worst_first)

    def _cost(self, unit: Unit) -> LayerCost:
        name, op = described(unit.layers, self._layers)
        return LayerCost(
            layer=name,
            op=op,
            score=unit.trial.score,
            gained=self._loss(unit),
            extra_bytes=self._bytes(unit),
            kept_float=self.best.floats.issuperset(unit.layers),
        )

    def _loss(self, unit: Unit) -> float:
        return float(f"{self._whole.score - unit.trial.score:.6g}")

    def _bytes(self, unit: Unit) -> int:
        return float_bytes(unit.layers, self._layers) // _SAVED

    def _try(self, floats: frozenset[int], below: int | None = None) -> Trial:
        """Make and measure a file; one that is not smaller than `below` is no use, and not measured."""
        if floats in self._known:
            return self._known[floats]
        if self.tried == self._budget:
            raise SpentError
        self.tried += 1
        try:
            model = self._make([self._layers[number] for number in sorted(floats)])
        except RuntimeError:
            return self._keep(Trial(floats, NOT_RUN, passed=False, size=0), b"")
        if below is not None and len(model) >= below:
            return Trial(floats, NOT_RUN, passed=False, size=len(model))
        score, passed = self._measure(model)
        return self._keep(Trial(floats, max(score, NOT_RUN), passed, len(model)), model)

    def _keep(self, trial: Trial, model: bytes) -> Trial:
        self._known[trial.floats] = trial
        if not self.model or self._goodness(trial) > self._goodness(self.best):
            self.best, self.model = trial, model
        self._tell(self.tried, self.best)
        return trial

    def _goodness(self, trial: Trial) -> tuple[bool, bool, float]:
        """The smallest that passes is the best. One without an int8 layer is no mixture, and better than nothing."""
        return trial.passed, trial.passed and trial.floats != self._all, -trial.size if trial.passed else trial.score

    def _rank(self) -> None:
        """Step 2: measure every layer, or segments of layers."""
        allowance = max(1, int(self._budget * _RANKING))
        count = len(self._layers)
        for segment in _cut(range(count), count if count <= allowance else min(_SEGMENTS, allowance)):
            self._alone(segment)
        while self.tried + 2 <= allowance:
            worst = min(filter(self._worth_halving, self.units), key=lambda u: (u.trial.score, u.layers), default=None)
            if worst is None:
                return
            self.units.remove(worst)
            for half in _cut(worst.layers, 2):
                self._alone(half)

    def _alone(self, layers: tuple[int, ...]) -> None:
        self.units.append(Unit(layers, self._try(self._all.difference(layers))))

    def _worth_halving(self, unit: Unit) -> bool:
        least = _WORTH * (self._whole.score - self.uniform.score)
        return len(unit.layers) > 1 and (not unit.trial.passed or self._loss(unit) > least)

    def _assemble(self) -> list[Unit]:
        """Step 3: return the fewest units, of those that cost most, which pass when they are float."""
        order = sorted(self.units, key=self._usefulness)
        # Units that fail alone must be float in any case, and often they are enough.
        failing = sum(not unit.trial.passed for unit in order)
        low, middle, high = max(0, failing - 1), max(1, failing), len(order)
        while high - low > 1:
            low, high = (low, middle) if self._try(self._closed(order[:middle])).passed else (middle, high)
            middle = (low + high) // 2
        return order[:high]

    def _usefulness(self, unit: Unit) -> tuple[bool, float, tuple[int, ...]]:
        """Order units: first those that fail alone, worst first; then by what is lost for a byte."""
        if not unit.trial.passed:
            return False, unit.trial.score, unit.layers
        return True, -self._loss(unit) / (1 + self._bytes(unit)), unit.layers

    def _closed(self, units: Sequence[Unit]) -> frozenset[int]:
        return closed(frozenset(number for unit in units for number in unit.layers), self._layers)

    def _take_back(self, kept: list[Unit]) -> None:
        """Step 4: make units int8 again, those with the most bytes and the least damage first."""
        for group in self._together(kept):
            rest = [unit for unit in kept if unit not in group]
            if rest and self._try(self._closed(rest), self.best.size).passed:
                kept = rest

    def _together(self, kept: Sequence[Unit]) -> list[list[Unit]]:
        """Group units that share constants: none of those is saved before the last of them is int8."""
        groups: list[list[Unit]] = []
        for unit in sorted(kept, key=lambda unit: unit.layers):
            sharing = [group for group in groups if any(self._shared(unit, other) for other in group)]
            groups = [group for group in groups if group not in sharing]
            groups.append([*(other for group in sharing for other in group), unit])
        return sorted(groups, key=lambda g: (-sum(map(self._bytes, g)), -min(u.trial.score for u in g), g[0].layers))

    def _shared(self, one: Unit, other: Unit) -> bool:
        tensors = [
            {tensor for number in unit.layers for tensor in self._layers[number].weights} for unit in (one, other)
        ]
        return not tensors[0].isdisjoint(tensors[1])


def _cut(numbers: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """Return `numbers` in this many runs of nearly the same length, none of them empty."""
    edges = [len(numbers) * part // parts for part in range(parts + 1)]
    return [tuple(numbers[start:end]) for start, end in pairwise(edges) if end > start]
