"""How a requester reaches its broker: by URL, with settings for somebody who waits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edged import brokerurl
from edged.errors import UnavailableError, UsageError
from edged.transports import open_transport
from edged.transports.base import Denied

if TYPE_CHECKING:
    from edged.transports.base import Transport

# Replies outlive a reconnect that takes no longer; after it the broker forgets a client that is gone.
SESSION_EXPIRY_S = 30
# Somebody is waiting: when the broker is back, the client tries it again within this time.
RECONNECT_MAX_S = 5.0


class Requester(NamedTuple):
    """A URL and its transport's options. where: the broker as an error names it. username: that of the login."""

    url: str
    options: Mapping[str, Any]
    where: str
    username: str | None

    def __repr__(self) -> str:
        """The place and the user: both the URL and the options may hold a password."""
        return f"Requester({self.where!r}, username={self.username!r})"

    def open(self, purpose: str = "") -> Transport:
        """Return a transport, not yet started. purpose: makes a client id of its own out of the one that was given."""
        options = dict(self.options)
        if purpose and options.get("client_id"):
            options["client_id"] += f"-{purpose}"
        return open_transport(self.url, **options)


def requester(url: str, options: Mapping[str, Any], client_id: str = "") -> Requester:
    """Read the URL and the transport's options (None or "auto": the default); `client_id` is used when they hold none.

    Raises UsageError. Defaults that suit a requester are added for MQTT only.
    """
    given = {key: value for key, value in options.items() if value not in (None, "auto")}
    if url.partition("://")[0].lower() not in brokerurl.DEFAULT_PORTS:
        return Requester(url, given, url, None)
    try:
        found = brokerurl.parse(url, allow_login=True)
    except ValueError as error:
        raise UsageError("broker", str(error)) from error
    files = {name: Path(given[name]) for name in brokerurl.TLS_FILES if name in given}
    # quiet: whoever asks is told in an error why there is no connection, and the log would say it twice.
    defaults = {
        "client_id": client_id,
        "session_expiry_s": SESSION_EXPIRY_S,
        "reconnect_max_s": RECONNECT_MAX_S,
        "quiet": True,
    }
    where = f"{found.host}:{found.port}"
    return Requester(url, {**defaults, **given, **files}, where, given.get("username", found.username))


def no_connection(broker: str, timeout_s: float, trouble: str) -> UnavailableError:
    """The error of who waited for a connection in vain, or need not wait any longer."""
    late = "" if isinstance(trouble, Denied) else f"no connection within {timeout_s:g} s: "
    return UnavailableError(broker, f"{late}{trouble}")
