"""The topic grammar: what is built is parsed back, what is not ours is refused, replies go to their own user."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import topics

LEVEL = st.text(min_size=1, max_size=20).filter(topics.valid_level)


@given(LEVEL, LEVEL, LEVEL)
def test_an_mqtt5_request_is_parsed_back(device: str, model: str, user: str) -> None:
    """parse(build(x)) is x, for any text that can be a level."""
    assert topics.parse_request(topics.request(device, model, user)) == topics.RequestTopic(device, model, user)


@given(LEVEL, LEVEL, LEVEL, LEVEL, LEVEL, st.none() | st.integers(1, 86_400_000))
def test_a_311_request_is_parsed_back(
    device: str, model: str, user: str, correlation: str, codec: str, deadline: int | None
) -> None:
    """The longer form too, with and without its deadline."""
    built = topics.request_v3(device, model, user, correlation, codec, deadline)
    want = topics.RequestTopic(device, model, user, correlation, codec, None if deadline is None else str(deadline))
    assert topics.parse_request(built) == want
    assert built.startswith(topics.request_filter(device)[:-1])


@given(
    st.text(max_size=80)
    | st.lists(st.sampled_from(["edged", "v1", "dev", "req", "c", "", "a", "1", "+", "#"]), max_size=12).map("/".join)
)
def test_garbage_raises_only_value_error(topic: str) -> None:
    """A topic is parsed into levels that are all there, or refused with a ValueError."""
    try:
        parsed = topics.parse_request(topic)
    except ValueError:
        return
    assert all(map(topics.valid_level, (parsed.device, parsed.model, parsed.user)))
    assert parsed.correlation is None or topics.valid_level(parsed.correlation)


@pytest.mark.parametrize(
    "topic",
    [
        "",
        "edged/v1/dev/d/req/m/c",
        "edged/v1/dev/d/req/m/x/u",
        "edged/v2/dev/d/req/m/c/u",
        "edged/v1/dev/d/out/m/c/u",
        "edged/v1/dev/d/req/m/c/",
        "edged/v1/dev//req/m/c/u",
        "edged/v1/dev/d/req//c/u",
        "edged/v1/dev/d/req/m/c/u/corr",
        "edged/v1/dev/d/req/m/c/u/corr/",
        "edged/v1/dev/d/req/m/c/u/corr/raw/",
        "edged/v1/dev/d/req/m/c/u/corr/raw/5/more",
        "edged/v1/dev/d/req/m/c/u/#/raw",
        "edged/v1/dev/d/req/m/c/+",
        "/edged/v1/dev/d/req/m/c/u",
    ],
)
def test_what_is_no_request_is_refused(topic: str) -> None:
    """Each part that can be wrong, one at a time."""
    with pytest.raises(ValueError, match=r"edged|MQTT|deadline|level"):
        topics.parse_request(topic)


@pytest.mark.parametrize(
    ("topic", "user", "allowed"),
    [
        ("edged/v1/resp/bob/7", "bob", True),
        ("edged/v1/resp/bob/inst/7", "bob", True),
        ("edged/v1/resp/bobby/7", "bob", False),  # a longer name
        ("edged/v1/resp/bo/7", "bob", False),
        ("edged/v1/resp/BOB/7", "bob", False),
        ("edged/v1/resp/bob", "bob", False),
        ("edged/v1/resp/bob/", "bob", False),
        ("edged/v1/resp/+/7", "bob", False),
        ("edged/v1/resp/bob/#", "bob", False),
        ("edged/v1/resp/bob/+/x", "bob", False),
        ("edged/v1/resp/bob/\0", "bob", False),
        ("/edged/v1/resp/bob/7", "bob", False),
        ("edged/v1/dev/press-07/status", "bob", False),
        ("edged/v1/dev/press-07/cmd/reload", "bob", False),  # the daemon may publish there, bob may not
        ("$SYS/broker/uptime", "bob", False),
        ("", "bob", False),
        ("edged/v1/resp//7", "", False),  # nobody
        ("edged/v1/resp/a/b/7", "a/b", False),  # two levels are no user
        ("edged/v1/resp/+/7", "+", False),
    ],
)
def test_a_reply_goes_to_its_own_user_only(topic: str, user: str, *, allowed: bool) -> None:
    """The daemon is no deputy: it publishes for a requester only where the broker's ACL lets the requester read."""
    assert topics.reply_allowed(topic, user) is allowed


@given(LEVEL, LEVEL, LEVEL)
def test_no_other_users_topic_is_ever_allowed(user: str, other: str, rest: str) -> None:
    """Whatever the two names are."""
    assert topics.reply_allowed(topics.response(user, rest), user)
    assert topics.reply_allowed(topics.response(other, rest), user) is (other == user)


@pytest.mark.parametrize(
    ("text", "valid"),
    [("a", True), ("é" * 127, True), ("é" * 128, False), ("", False), ("a/b", False), ("+", False), ("a\0", False)],
)
def test_a_level_is_one_level(text: str, *, valid: bool) -> None:
    """Separators, wildcards, NUL and more than 255 bytes of UTF-8 are not one level."""
    assert topics.valid_level(text) is valid


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "1e3", " 1", "86400001", "9" * 10_000, "\u0661"])
def test_what_is_no_deadline_is_refused(text: str) -> None:
    """Only ASCII digits, from a millisecond to a day."""
    with pytest.raises(ValueError, match="deadline-ms must be 1 to 86400000"):
        topics.parse_deadline(text)


@given(st.integers(1, 86_400_000))
def test_every_deadline_in_range_is_read(milliseconds: int) -> None:
    """The bounds included."""
    assert topics.parse_deadline(str(milliseconds)) == milliseconds


@pytest.mark.parametrize("text", ["", "a/b", "+", "#", "a\0", "a\x01b", "a\x7f", "\ud800", "x" * 256, "é" * 128])
def test_what_is_no_level_is_refused(text: str) -> None:
    """Brokers drop the sender of control characters and broken UTF-8; 255 bytes is the bound."""
    assert not topics.valid_level(text)


@pytest.mark.parametrize("text", ["a", "press-07", "été", "日本", "a b", "x" * 255, "$x"])
def test_ordinary_names_are_levels(text: str) -> None:
    """Printable text of any script."""
    assert topics.valid_level(text)
