"""Which samples a recording keeps: the first, one of many, so many of a key, a drawn few; never beyond its memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from edged.recording import keep
from edged.recording.keep import Kept, Rule


def offered(rule: Rule, keys: str, size: int = 1) -> Kept:
    """Offer one numbered sample for each letter of `keys`."""
    kept = Kept(rule)
    for number, key in enumerate(keys):
        kept.offer(key, {"x": np.full(size, number, np.float32)})
    return kept


def numbers(kept: Kept) -> list[int]:
    return [int(sample["x"][0]) for sample in kept.samples()]


@pytest.mark.parametrize(
    ("rule", "keys", "expected", "left_out"),
    [
        ({}, "aabb", [0, 1, 2, 3], {}),
        ({"count": 3}, "aabbab", [0, 1, 2], {}),
        ({"every": 2}, "aabbab", [0, 2, 4, 5], {"every": 2}),
        ({"per_key": 2}, "aaabab", [0, 1, 3, 5], {"per_key": 2}),
        ({"per_key": 2, "count": 3}, "aaabab", [0, 1, 3], {"per_key": 1}),
        ({"every": 2, "per_key": 1}, "aaaab", [0, 4], {"every": 2, "per_key": 1}),
    ],
)
def test_the_rule_decides(rule: dict[str, Any], keys: str, expected: list[int], left_out: dict[str, int]) -> None:
    """Counted by key, in the order they came; what is not kept is counted under the option that left it out."""
    kept = offered(Rule(**rule), keys)
    assert numbers(kept) == expected
    assert dict(kept.left_out) == left_out
    assert kept.full == ("count" if rule.get("count") else "")
    assert {key: n for key, n in kept.kept.items() if n} == Counter(keys[i] for i in expected)


def test_memory_is_bounded() -> None:
    """At the bound nothing more is taken, and what is counted is at least what the arrays hold."""
    kept = offered(Rule(max_bytes=10_000), "a" * 100, size=500)
    assert kept.full == "max-bytes"
    assert 3 <= kept.count <= 5
    assert kept.count * 2000 <= kept.bytes <= 10_000


def test_spread_draws_evenly_from_the_whole_time() -> None:
    """50 of 10,000: the first tenth gets its share like the last, and the order stays that of arrival.

    A fair draw has a mean of 5,000 with a standard deviation of 2887 / sqrt(50) = 408.
    """
    kept = offered(Rule(count=50, spread=True), "a" * 10_000)
    found = numbers(kept)
    assert kept.count == len(found) == len(set(found)) == 50
    assert found == sorted(found)
    assert abs(np.mean(found) - 5000) < 3 * 408
    assert min(found) < 1000
    assert max(found) > 9000
    assert kept.full == ""
    assert kept.left_out["spread"] == 9950


def test_spread_gives_every_sample_the_same_chance() -> None:
    """Over 2,000 recordings of 10 samples of which 3 are drawn, each is drawn about 600 times (deviation 20)."""
    drawn: Counter[int] = Counter()
    for offset in range(2000):
        kept = Kept(Rule(count=3, spread=True))
        kept._random.seed(offset)
        for number in range(10):
            kept.offer("a", {"x": np.array([number])})
        drawn.update(numbers(kept))
    assert all(abs(count - 600) < 5 * 20.5 for count in drawn.values()), drawn


def test_spread_by_key_is_balanced_and_bounded() -> None:
    """A sensor that sends a hundred times as often gets no more; memory counts what is held now."""
    kept = offered(Rule(per_key=10, spread=True), ("a" * 100 + "b") * 20)
    assert dict(kept.kept) == {"a": 10, "b": 10}
    assert kept.bytes == 20 * (4 + keep._OVERHEAD)


def test_the_same_traffic_gives_the_same_choice() -> None:
    """The draw is seeded: recorded twice, the same samples."""
    rule = Rule(count=5, spread=True)
    assert numbers(offered(rule, "ab" * 500)) == numbers(offered(rule, "ab" * 500))


def test_keys_without_number_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic per message must not fill the memory: beyond the bound, keys share one count."""
    monkeypatch.setattr(keep, "MAX_KEYS", 3)
    kept = offered(Rule(), "abcdefc")
    assert dict(kept.kept) == {"a": 1, "b": 1, "c": 2, keep.OTHER_KEYS: 3}
