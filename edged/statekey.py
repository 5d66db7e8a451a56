"""Whose state a stateful model keeps apart: the keys of requests, as `cmd/reset` names them.

a user                       c/<user>
one of a user's own          c/<user>/<state-key>       (MQTT 5 user property `state-key`; it may hold slashes)
a producer on the box        local/<uid>
a stream                     out/<stream>[/<key>]

They read like the ends of the topics that the requests come from and the answers go to. A user is a level of the
requester's topic, which the broker ties to the login, so that nobody gets at the state of another one. Whose process a
producer on the box is the kernel says; a login of the same name is somebody else.
"""

from __future__ import annotations

PROPERTY = "state-key"
MAX_BYTES = 255


def of_user(user: str, own: str | None = None) -> str:
    """Return the key of a request. own: its `state-key`. Raises ValueError for one that cannot be a key."""
    if own is None:
        return f"c/{user}"
    if not own or not own.isprintable() or len(own.encode()) > MAX_BYTES:
        msg = f"{PROPERTY} must be 1 to {MAX_BYTES} bytes without control characters"
        raise ValueError(msg)
    return f"c/{user}/{own}"


def of_producer(user: str, own: str | None = None) -> str:
    """Return the key of a request of a producer on the box, whose user is `local-<uid>`; it has no key of its own."""
    del own
    return f"local/{user.removeprefix('local-')}"


def of_stream(stream: str, key: str) -> str:
    """Return the key of a stream's window. key: that of the window, "" for a stream that has none."""
    return f"out/{stream}/{key}" if key else f"out/{stream}"


def owner(key: str) -> str:
    """Return the user, producer or stream that a key belongs to: its first two levels."""
    return "/".join(key.split("/", 2)[:2])


def below(key: str, top: str | None) -> bool:
    """Whether `key` is `top` or one below it; every key is below None."""
    return top is None or key == top or key.startswith(f"{top}/")
