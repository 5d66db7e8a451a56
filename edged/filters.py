"""Topics and topic filters, as MQTT 5.0 has them (sections 1.5.4 and 4.7). Pure text."""

from __future__ import annotations

# What the length of a text or of binary data can say (MQTT 5.0, 1.5.4 and 1.5.6).
MAX_BYTES = 65_535
# C0 and C1 controls, surrogates, non-characters (the last two of each plane are tested by their bits).
_FORBIDDEN = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xDFFF), (0xFDD0, 0xFDEF))
_WILDCARDS = ("+", "#")
_TEXT = f"1 to {MAX_BYTES} bytes of UTF-8, without control characters"


def problem(filter_: str) -> str | None:
    """Return why no subscription may ask for `filter_`, or None (MQTT 5.0, 4.7)."""
    levels = filter_.split("/")
    mixed = next((level for level in levels if level not in _WILDCARDS and ("+" in level or "#" in level)), None)
    if mixed is not None:
        return f"a wildcard stands alone on its level, got {mixed!r}"
    if "#" in levels[:-1]:
        return "'#' may only be the last level"
    return None if valid_text(filter_) else f"a topic filter is {_TEXT}"


def valid_filter(filter_: str) -> bool:
    """Whether a subscription may ask for `filter_`."""
    return problem(filter_) is None


def overlap(one: str, other: str) -> bool:
    """Whether some topic goes to both of two valid filters. A topic is a filter without wildcards.

    `+` stands for one level, a last `#` for any number, also none. A wildcard in the first place does not match topics
    that begin with `$`.
    """
    first, second = one.split("/"), other.split("/")
    if _hidden(first[0], second[0]) or _hidden(second[0], first[0]):
        return False
    for mine, yours in zip(first, second, strict=False):
        if "#" in (mine, yours):
            return True
        if mine != yours and "+" not in (mine, yours):
            return False
    return (first[len(second) :] or second[len(first) :]) in ([], ["#"])


def matches(filter_: str, topic: str) -> bool:
    """Whether a message on `topic` goes to a subscription to `filter_`; both must be valid."""
    return overlap(filter_, topic)


def valid_topic(topic: str) -> bool:
    """Whether a message may be published on `topic`; a broker answers anything else by closing the connection."""
    return "+" not in topic and "#" not in topic and valid_text(topic)


def text_problem(text: str) -> str | None:
    """Return why `text` cannot be a name that MQTT carries, or None."""
    return None if valid_text(text) else f"must be {_TEXT}"


def valid_text(text: str) -> bool:
    """Whether `text` is not empty, not too long, and `sendable`."""
    return bool(text) and sendable(text) and len(text.encode()) <= MAX_BYTES


def sendable(text: str) -> bool:
    """Whether MQTT carries every character of `text` (MQTT 5.0, 1.5.4): no controls, surrogates, non-characters.

    The specification lets a broker close the connection over most of these, and brokers do.
    """
    return (text.isascii() and text.isprintable()) or not any(_forbidden(ord(char)) for char in text)


def _hidden(wanted: str, level: str) -> bool:
    return wanted in _WILDCARDS and level.startswith("$")


def _forbidden(point: int) -> bool:
    return any(low <= point <= high for low, high in _FORBIDDEN) or point & 0xFFFE == 0xFFFE  # noqa: PLR2004 (bits)
