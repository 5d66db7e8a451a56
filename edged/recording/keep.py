"""Which samples are kept, within bounds of number and memory. Pure: a key and a sample in, kept or left out and why."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy.typing as npt

Array = npt.NDArray[Any]
Sample = Mapping[str, Array]
Full = Literal["", "count", "max-bytes"]

DEFAULT_BYTES = 1 << 30
# What Python adds to one small array and to the mapping around it, about.
_OVERHEAD = 256
# Keys counted by name; a topic can be made of anything, so the rest are counted together.
MAX_KEYS = 10_000
OTHER_KEYS = "(other)"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How much is wanted. count: in all. every: one of so many of a key. per_key: at most so many of a key.

    spread: keep `count` (or of each key `per_key`) samples drawn evenly from all that come, not the first ones.
    max_bytes: of kept samples; at it nothing more is taken.
    """

    count: int | None = None
    every: int = 1
    per_key: int | None = None
    spread: bool = False
    max_bytes: int = DEFAULT_BYTES


class _Item(NamedTuple):
    number: int
    key: str
    sample: Sample


class Kept:
    """The samples kept so far. kept: how many of each key; left_out: how many were not kept, by the rule's reason."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._groups: dict[str, list[_Item]] = {}
        self._offered: Counter[str] = Counter()
        self._drawn: Counter[str] = Counter()
        self._number = 0
        # Seeded: the same traffic gives the same choice.
        self._random = random.Random(0)  # noqa: S311  # no secret
        self.kept: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.bytes = 0
        self.full: Full = ""

    @property
    def count(self) -> int:
        """How many samples are kept."""
        return self.kept.total()

    def samples(self) -> list[Sample]:
        """The kept samples, in the order they came."""
        items = (item for group in self._groups.values() for item in group)
        return [item.sample for item in sorted(items, key=lambda item: item.number)]

    def offer(self, key: str, sample: Sample) -> None:
        """Keep the sample or count why not. Nothing changes once `full` says why no more is taken."""
        if self.full:
            return
        key = key if key in self._offered or len(self._offered) < MAX_KEYS else OTHER_KEYS
        self._offered[key] += 1
        if (self._offered[key] - 1) % self._rule.every:
            self.left_out["every"] += 1
            return
        self._number += 1
        item = _Item(self._number, key, sample)
        if self._rule.spread:
            self._draw(item)
        elif self.kept[key] == self._rule.per_key:
            self.left_out["per_key"] += 1
        else:
            self._append(key, item)

    def _draw(self, item: _Item) -> None:
        """Give each the same chance: algorithm R (Vitter, Random Sampling with a Reservoir, ACM TOMS 11, 1985)."""
        group = "" if self._rule.per_key is None else item.key
        items = self._groups.setdefault(group, [])
        self._drawn[group] += 1
        if len(items) < (self._rule.per_key or self._rule.count or 0):
            self._append(group, item)
            return
        self.left_out["spread"] += 1
        place = self._random.randrange(self._drawn[group])
        if place < len(items):
            self._forget(items[place])
            items[place] = item
            self._note(item)

    def _append(self, group: str, item: _Item) -> None:
        if self.bytes + _size(item.sample) > self._rule.max_bytes:
            self.full = "max-bytes"
            return
        self._groups.setdefault(group, []).append(item)
        self._note(item)
        if not self._rule.spread and self.count == self._rule.count:
            self.full = "count"

    def _note(self, item: _Item) -> None:
        self.kept[item.key] += 1
        self.bytes += _size(item.sample)

    def _forget(self, item: _Item) -> None:
        self.kept[item.key] -= 1
        self.bytes -= _size(item.sample)


def _size(sample: Sample) -> int:
    return held(array.nbytes for array in sample.values())


def held(arrays: Iterable[int]) -> int:
    """Return the bytes that a sample takes, as `max_bytes` counts them, from those of its arrays."""
    return sum(count + _OVERHEAD for count in arrays)
