"""When requests are meant to be sent: distances and statistics that numpy confirms."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from edged.bench import arrivals

N = 40_000


def test_constant_offsets_do_not_drift() -> None:
    """The millionth offset is where arithmetic says, though a third of a second has no whole ns."""
    offsets = list(islice(arrivals.constant(3), 1_000_001))
    assert offsets[:2] == [0, 333_333_333]
    assert offsets[-1] == pytest.approx(1_000_000 * 1e9 / 3, abs=64)


def test_poisson_gaps_are_exponential() -> None:
    """Mean, deviation and the whole distribution (Kolmogorov and Smirnov, 0.1 %) are those of an exponential."""
    gaps = np.diff([0, *islice(arrivals.poisson(100, 7), N)]) / 1e9
    assert gaps.mean() == pytest.approx(0.01, rel=4 / N**0.5)
    assert gaps.std() == pytest.approx(0.01, rel=0.04)
    found = np.sort(gaps)
    expected = 1 - np.exp(-100 * found)
    assert np.abs(expected - np.arange(1, N + 1) / N).max() < 1.95 / N**0.5


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    """In a second there are as many requests on average as their variance: not smoothed, not in bursts."""
    offsets = np.fromiter(islice(arrivals.poisson(50, 11), N), np.int64)
    counts = np.bincount(offsets // 1_000_000_000)[:-1]
    assert counts.mean() == pytest.approx(50, rel=0.03)
    assert counts.var() == pytest.approx(counts.mean(), rel=0.2)
    assert abs(np.corrcoef(counts[:-1], counts[1:])[0, 1]) < 0.15


def test_the_seed_decides() -> None:
    """The same seed gives the same load, another one another."""
    first, again, other = (list(islice(arrivals.poisson(10, seed), 5000)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first == sorted(first)
