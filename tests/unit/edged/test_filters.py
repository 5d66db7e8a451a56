"""Topic rules against paho's matcher and the specification's own examples."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from edged.filters import MAX_BYTES, matches, overlap, problem, sendable, text_problem, valid_filter, valid_topic

_LEVEL = st.sampled_from(["", "a", "b", "sport", "$SYS", "$x", "é"])
_TOPIC = st.lists(_LEVEL, min_size=1, max_size=5).map("/".join)
_FILTER = st.tuples(
    st.lists(st.one_of(_LEVEL, st.just("+")), min_size=1, max_size=5), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join(parts[0] + parts[1]))

_SMALL = st.tuples(
    st.lists(st.sampled_from(["a", "b", "$x", "+"]), min_size=1, max_size=3), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join((parts[0] + parts[1])[:3]))


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


@given(one=_FILTER, other=_FILTER, topic=_TOPIC)
def test_overlap_holds_for_every_common_topic(one: str, other: str, topic: str) -> None:
    """Where paho sends one topic to both filters they overlap, in either order."""
    if topic_matches_sub(one, topic) and topic_matches_sub(other, topic):
        assert overlap(one, other)
        assert overlap(other, one)


# Two levels of each kind, and one more level than a filter of this test has: every way a topic can differ.
_TOPICS = ["/".join(levels) for n in (1, 2, 3, 4) for levels in itertools.product(["a", "b", "$x"], repeat=n)]


@given(one=_SMALL, other=_SMALL)
def test_overlap_needs_a_common_topic(one: str, other: str) -> None:
    """Tried on every topic there can be over three levels' names: no topic in common, no overlap."""
    common = any(topic_matches_sub(one, topic) and topic_matches_sub(other, topic) for topic in _TOPICS)
    assert overlap(one, other) == common


@pytest.mark.parametrize(
    ("bad", "what"),
    [("a#", "stands alone"), ("+b/c", "'+b'"), ("a/#/b", "last level"), ("", "1 to 65535"), ("a\0", "control")],
)
def test_problem_names_the_rule(bad: str, what: str) -> None:
    """A person is told which rule a filter breaks."""
    assert what in (problem(bad) or "")


def test_a_text_has_a_length_and_no_controls() -> None:
    """Names, logins and client ids: not empty, at most what two length bytes can say."""
    assert text_problem("é" * (MAX_BYTES // 2)) is None
    for bad in ("", "é" * (MAX_BYTES // 2 + 1), "a\n", "\ud800"):
        assert "1 to 65535 bytes" in (text_problem(bad) or "")


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
