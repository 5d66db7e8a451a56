"""How long something may take that comes once in the life of a process."""

from __future__ import annotations

from edged.engines.patience import Patience

S = 1_000_000_000


def test_unknown_it_has_the_most() -> None:
    """Late or not."""
    patience = Patience(10.0, S, 60 * S)
    assert patience.ns == 60 * S
    patience.late()
    assert patience.ns == 60 * S


def test_known_it_has_a_multiple_of_the_slowest() -> None:
    """Within its bounds."""
    patience = Patience(10.0, S, 60 * S)
    for took, given in ((S // 1000, S), (2 * S, 20 * S), (S, 20 * S), (10 * S, 60 * S), (50 * S, 100 * S)):
        patience.took(took)
        assert patience.ns == given


def test_late_it_is_given_twice_as_long() -> None:
    """Up to the most; what is in time ends that."""
    patience = Patience(10.0, S, 60 * S)
    patience.took(S // 1000)
    given = []
    for _ in range(8):
        given.append(patience.ns)
        patience.late()
    assert given == [S, 2 * S, 4 * S, 8 * S, 16 * S, 32 * S, 60 * S, 60 * S]
    for _ in range(1000):
        patience.late()
    assert patience.ns == 60 * S
    patience.took(S // 1000)
    assert patience.ns == S
