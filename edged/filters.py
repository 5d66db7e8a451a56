"""Topics and topic filters, as MQTT 5.0 has them (sections 1.5.4 and 4.7). Pure text."""

from __future__ import annotations

_MAX_BYTES = 65_535
# C0 and C1 controls, surrogates, non-characters (the last two of each plane are tested by their bits).
_FORBIDDEN = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xDFFF), (0xFDD0, 0xFDEF))


def valid_filter(filter_: str) -> bool:
    """Whether a subscription may ask for `filter_`: a wildcard fills its level, `#` is the last one."""
    levels = filter_.split("/")
    wild_alone = all(level in ("+", "#") or not ("+" in level or "#" in level) for level in levels)
    return bool(filter_) and wild_alone and "#" not in levels[:-1] and sendable(filter_) and _fits(filter_)


def matches(filter_: str, topic: str) -> bool:
    """Whether a message on `topic` goes to a subscription to `filter_`.

    `+` stands for one level, a last `#` for any number, also none. A wildcard in the first place does not match
    topics that begin with `$`. The filter must be a valid one.
    """
    wanted, levels = filter_.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(levels) or level not in ("+", levels[index]):
            return False
    return len(wanted) == len(levels)


def valid_topic(topic: str) -> bool:
    """Whether a message may be published on `topic`; a broker answers anything else by closing the connection."""
    return bool(topic) and "+" not in topic and "#" not in topic and sendable(topic) and _fits(topic)


def sendable(text: str) -> bool:
    """Whether MQTT carries every character of `text` (MQTT 5.0, 1.5.4): no controls, surrogates, non-characters.

    The specification lets a broker close the connection over most of these, and brokers do.
    """
    return (text.isascii() and text.isprintable()) or not any(_forbidden(ord(char)) for char in text)


def _forbidden(point: int) -> bool:
    return any(low <= point <= high for low, high in _FORBIDDEN) or point & 0xFFFE == 0xFFFE  # noqa: PLR2004 (bits)


def _fits(text: str) -> bool:
    try:
        return len(text.encode()) <= _MAX_BYTES
    except UnicodeEncodeError:
        return False
