"""When requests are meant to be sent: endless offsets in ns from the start, never earlier than the one before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edged.clock import NS_PER_S

# How many gaps are drawn at once: between two sends there is no time for numpy's overhead.
_DRAWN = 4096


def constant(rate: float) -> Iterator[int]:
    """Yield offsets at equal distances, `rate` a second."""
    number = 0
    while True:
        yield int(number * NS_PER_S / rate)
        number += 1


def poisson(rate: float, seed: int) -> Iterator[int]:
    """Yield offsets whose gaps are exponential with the mean 1 / `rate`: many independent requesters.

    The same seed gives the same offsets.
    """
    random, last = np.random.default_rng(seed), 0.0
    while True:
        for offset in last + np.cumsum(random.exponential(NS_PER_S / rate, _DRAWN)):
            last = float(offset)
            yield int(offset)
