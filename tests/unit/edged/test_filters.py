"""Topic rules against paho's matcher and the specification's own examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from edged.filters import matches, sendable, valid_filter, valid_topic

_LEVEL = st.sampled_from(["", "a", "b", "sport", "$SYS", "$x", "é"])
_TOPIC = st.lists(_LEVEL, min_size=1, max_size=5).map("/".join)
_FILTER = st.tuples(
    st.lists(st.one_of(_LEVEL, st.just("+")), min_size=1, max_size=5), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join(parts[0] + parts[1]))


@given(filter_=st.one_of(_FILTER, st.just("#")), topic=_TOPIC)
def test_matches_agrees_with_paho(filter_: str, topic: str) -> None:
    """paho's trie and our comparison give one answer for any filter and topic, `$` topics included."""
    assert matches(filter_, topic) == topic_matches_sub(filter_, topic)


@pytest.mark.parametrize(
    ("filter_", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/broker", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/broker", True),
    ],
)
def test_examples_of_the_specification(filter_: str, topic: str, expected: bool) -> None:
    """MQTT 5.0, 4.7.1 and 4.7.2, name these by example."""
    assert matches(filter_, topic) is expected


@pytest.mark.parametrize("good", ["#", "+", "a/#", "+/a/+", "/", "a//b", "$share/g/a/+", "x" * 65_535])
def test_valid_filters(good: str) -> None:
    """What a broker takes as a subscription."""
    assert valid_filter(good)


@pytest.mark.parametrize("bad", ["", "a#", "a/#/b", "a+/b", "#/a", "a\0b", "x" * 65_536, "\ud800"])
def test_invalid_filters(bad: str) -> None:
    """What a broker answers by closing the connection."""
    assert not valid_filter(bad)


@pytest.mark.parametrize("bad", ["", "a/+", "a/#", "a\0", "a\x07", "\x85", "\ufffe", "\U0001ffff", "\ufdd0", "\udc00"])
def test_invalid_topics(bad: str) -> None:
    """Wildcards, controls, non-characters, lone surrogates and nothing at all are no topics."""
    assert not valid_topic(bad)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1))
def test_ordinary_text_is_sendable(text: str) -> None:
    """Letters, digits, marks and symbols of any script may be sent."""
    assert sendable(text)
