"""The URL of an MQTT broker, and which TLS files go with it. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}
TLS_FILES = ("ca_file", "cert_file", "key_file")
_MAX_PORT = 65_535
_PLACE = re.compile(
    r"(?:(?P<user>[^/?#@:]*)(?::(?P<password>[^/?#@]*))?@)?"
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s\x00-\x1f\x7f:/?#\[\]@]+)(?::(?P<port>[0-9]{1,5}))?/?"
)
# Scheme and host without, or with digits after, a colon: where a password would stand, nothing is shown.
_HARMLESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?(?:\[[0-9A-Fa-f:.]*\]?|[^:@\[\]]*)(?::[0-9]{0,6}(?![^/]))?", re.IGNORECASE
)
_SHOWN = 60


class BrokerUrl(NamedTuple):
    """Where to connect, and as whom when the URL says so."""

    host: str
    port: int
    tls: bool
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        """The place and the user, without the password."""
        return f"BrokerUrl({self.host!r}, {self.port}, tls={self.tls}, username={self.username!r})"


def parse(url: str, *, allow_login: bool) -> BrokerUrl:
    """Read `mqtt[s]://[user[:password]@]host[:port]`: the scheme in any case, an IPv6 host in brackets.

    allow_login: whether the URL may hold credentials, percent-encoded. Raises ValueError, which never repeats them.
    """
    if "@" in url and not allow_login:
        msg = "credentials do not belong in the URL: use username with password_file or password_env"
        raise ValueError(msg)
    scheme, _, place = url.partition("://")
    match = _PLACE.fullmatch(place)
    if scheme.lower() not in DEFAULT_PORTS or match is None:
        msg = f"expected mqtt://host[:port] or mqtts://host[:port], got {_without_login(url)!r}"
        raise ValueError(msg)
    port = int(match["port"] or DEFAULT_PORTS[scheme.lower()])
    if not 1 <= port <= _MAX_PORT:
        msg = f"port {port} is not between 1 and {_MAX_PORT}"
        raise ValueError(msg)
    host = match["host"].strip("[]")
    wrong = host_problem(host)
    if wrong is not None:
        raise ValueError(wrong)
    login = (unquote(match[part]) if match[part] else None for part in ("user", "password"))
    return BrokerUrl(host, port, scheme.lower() == "mqtts", *login)


def tls_problems(*, tls: bool, ca: bool, cert: bool, key: bool) -> Iterator[tuple[str, str]]:
    """Yield (option, what is wrong) where the TLS files that are given do not go with the URL or with each other."""
    for name, given in zip(TLS_FILES, (ca, cert, key), strict=True):
        if given and not tls:
            yield name, "needs TLS: write the url as mqtts://"
    if cert != key:
        yield ("cert_file" if key else "key_file"), "a client certificate needs both cert_file and key_file"


def _without_login(url: str) -> str:
    """The URL as an error may show it: what may be a password in a wrong place is left out with all behind it."""
    found = _HARMLESS.match(url)
    shown = found[0] if found else ""
    scheme = next((f"{name}://" for name in DEFAULT_PORTS if url.lower().startswith(f"{name}://")), "")
    if "@" in url:
        shown = f"{scheme}…"
    elif len(shown) < len(url):
        shown += "…"
    return shown[:_SHOWN]


def host_problem(host: str) -> str | None:
    """Return why no network can look this name up, or None: empty labels, labels of more than 63 bytes."""
    try:
        host.encode("idna")
    except UnicodeError as error:
        return f"{host[:_SHOWN]!r} cannot be a host's name: {error.__cause__ or error}"
    return None
