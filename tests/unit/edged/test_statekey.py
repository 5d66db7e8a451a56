"""Keys of state: nobody's can be taken for another one's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import statekey

LEVEL = st.text(st.characters(blacklist_characters="/+#", blacklist_categories=("Cc", "Cs")), min_size=1, max_size=8)
OWN = st.none() | st.text(st.sampled_from("ab/"), min_size=1, max_size=6)


@given(LEVEL, LEVEL, OWN, OWN)
def test_no_property_reaches_another_users_state(one: str, other: str, own: str | None, others: str | None) -> None:
    """Two users' keys never meet, whatever they send, nor does a reset of one reach the other."""
    if one == other:
        return
    mine, theirs = statekey.of_user(one, own), statekey.of_user(other, others)
    assert mine != theirs
    assert not statekey.below(theirs, f"c/{one}")
    assert statekey.owner(mine) == f"c/{one}"


@given(LEVEL, LEVEL, OWN)
def test_a_producer_is_no_user(user: str, stream: str, own: str | None) -> None:
    """A login, or a stream, may be called like a producer on the box."""
    key = statekey.of_producer("local-1000")
    assert (key, statekey.owner(key)) == ("local/1000", "local/1000")
    assert not statekey.below(key, statekey.of_user("local-1000"))
    assert not statekey.below(statekey.of_user(user, own), key)
    assert not statekey.below(statekey.of_stream(stream, "1000"), key)


@given(LEVEL, LEVEL)
def test_a_stream_is_no_user(stream: str, user: str) -> None:
    """A stream called like a user has a state of its own, and so have two streams with equal keys."""
    assert statekey.of_stream(stream, "k") != statekey.of_user(user, "k")
    assert statekey.of_stream("a", stream) != statekey.of_stream("b", stream)
    assert statekey.owner(statekey.of_stream(stream, "k")) == statekey.of_stream(stream, "")


@pytest.mark.parametrize("own", ["", "x" * 256, "ä" * 128, "a\nb", "\0"])
def test_what_is_no_key_is_refused(own: str) -> None:
    """Empty, too long in bytes, or with a control character: a key is held, shown and logged."""
    with pytest.raises(ValueError, match="state-key must be 1 to 255 bytes"):
        statekey.of_user("u", own)


def test_below_is_by_levels() -> None:
    """`c/al` is not above `c/alice`; None is above everything."""
    assert statekey.below("c/alice/x", "c/alice")
    assert statekey.below("c/alice", "c/alice")
    assert not statekey.below("c/alice", "c/al")
    assert statekey.below("out/imu", None)
