"""The public topic grammar, version `v1`. Pure text: no transport, no state.

request, MQTT 5     edged/v1/dev/<device>/req/<model>/c/<user>
request, 3.1.1      edged/v1/dev/<device>/req/<model>/c/<user>/<corr>/<codec>[/<deadline-ms>]
reply               edged/v1/resp/<user>/…
stream output       edged/v1/dev/<device>/out/<stream>[/<key>]
status, metrics     edged/v1/dev/<device>/status, …/metrics
models              edged/v1/dev/<device>/desired/models, …/reported/models
command, event      edged/v1/dev/<device>/cmd/<verb>, …/event/<verb>
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

ROOT = "edged/v1"
MAX_DEADLINE_MS = 86_400_000  # a day
_MAX_LEVEL = 255
_KEPT_LENGTH = 256


@dataclass(frozen=True)
class RequestTopic:
    """A parsed request topic; `correlation`, `codec` and `deadline` (text, unchecked) only in the MQTT 3.1.1 form."""

    device: str
    model: str
    user: str
    correlation: str | None = None
    codec: str | None = None
    deadline: str | None = None


def valid_level(text: str) -> bool:
    """Whether `text` can be one topic level: 1 to 255 bytes, no separator, wildcard, control or lone surrogate."""
    plain = text.isprintable() or not any(unicodedata.category(c) in ("Cc", "Cs") for c in text)
    return plain and "/" not in text and not _reserved(text) and 0 < len(text.encode()) <= _MAX_LEVEL


def device(name: str, *levels: str) -> str:
    """Return a topic of the device: `device("press-07", "status")`."""
    return "/".join((ROOT, "dev", name, *levels))


def request_filter(name: str) -> str:
    """Return the filter that catches every request form for this device."""
    return device(name, "req", "#")


def request(device_name: str, model: str, user: str) -> str:
    """Return the MQTT 5 request topic."""
    return device(device_name, "req", model, "c", user)


def request_v3(device_name: str, model: str, user: str, correlation: str, codec: str, deadline_ms: int | None) -> str:
    """Return the MQTT 3.1.1 request topic."""
    tail = () if deadline_ms is None else (str(deadline_ms),)
    return device(device_name, "req", model, "c", user, correlation, codec, *tail)


def response(user: str, *levels: str) -> str:
    """Return a reply topic of `user`."""
    return "/".join((ROOT, "resp", user, *levels))


def parse_request(topic: str) -> RequestTopic:
    """Parse a request topic; raises ValueError saying which part is wrong."""
    return _parsed(topic) if len(topic) <= _KEPT_LENGTH else _parse(topic)


def _parse(topic: str) -> RequestTopic:
    levels = topic.split("/")
    if len(levels) < 8 or levels[:3] != ["edged", "v1", "dev"] or levels[4] != "req" or levels[6] != "c":  # noqa: PLR2004
        msg = "not edged/v1/dev/<device>/req/<model>/c/<user>[/<corr>/<codec>[/<deadline-ms>]]"
        raise ValueError(msg)
    if "" in levels or _reserved(topic):
        msg = "a level is empty, or holds a wildcard or NUL"
        raise ValueError(msg)
    name, model, user, rest = levels[3], levels[5], levels[7], levels[8:]
    if not rest:
        return RequestTopic(name, model, user)
    if len(rest) not in (2, 3):
        msg = "the MQTT 3.1.1 form ends in /<corr>/<codec>[/<deadline-ms>]"
        raise ValueError(msg)
    return RequestTopic(name, model, user, *rest)


# A requester's topic is the same for all its requests. Long ones are not kept: they may be 64 KiB each.
_parsed = lru_cache(maxsize=128)(_parse)


def parse_deadline(text: str) -> int:
    """Read a deadline in milliseconds, 1 to `MAX_DEADLINE_MS`; raises ValueError on anything else."""
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_DEADLINE_MS))
    if not digits or not 0 < int(text) <= MAX_DEADLINE_MS:
        msg = f"deadline-ms must be 1 to {MAX_DEADLINE_MS}, got {text[:20]!r}"
        raise ValueError(msg)
    return int(text)


def reply_allowed(topic: str, user: str) -> bool:
    """Whether a Response Topic belongs to the requesting user: under `edged/v1/resp/<user>/`, no wildcard or NUL.

    Anything else would let a requester make the daemon publish where the requester itself may not.
    """
    return _found_allowed(topic, user) if len(topic) + len(user) <= _KEPT_LENGTH else _allowed(topic, user)


def _allowed(topic: str, user: str) -> bool:
    prefix = response(user, "")
    below = topic.startswith(prefix) and len(topic) > len(prefix)
    return below and valid_level(user) and not _reserved(topic)


_found_allowed = lru_cache(maxsize=128)(_allowed)  # as `_parsed`


def _reserved(topic: str) -> bool:
    return "+" in topic or "#" in topic or "\0" in topic
