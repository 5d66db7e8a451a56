"""Transports by URL scheme; a module is imported when its scheme is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from edged.errors import UsageError
from edged.transports.base import Transport

# scheme -> module with `open_url(url, **options) -> Transport`
MODULES = {
    "mqtt": "edged.transports.mqtt",
    "mqtts": "edged.transports.mqtt",
    "loopback": "edged.transports.loopback",
}


def open_transport(url: str, **options: Any) -> Transport:
    """Return a transport, not yet started, for `mqtt://host`, `mqtts://host` or `loopback://bus`.

    options: the fields of the transport's own settings. Raises UsageError on an unknown scheme or a bad URL.
    """
    scheme, separator, _ = url.partition("://")
    scheme = scheme.lower()
    if scheme not in MODULES:
        # Without "://" it is the whole URL, which may hold a password.
        shown = f"unknown scheme {scheme[:20]!r}" if separator and scheme.isalnum() else "no scheme in the URL"
        raise UsageError("transport", shown, f"one of {', '.join(sorted(MODULES))}")
    transport: Transport = import_module(MODULES[scheme]).open_url(url, **options)
    return transport
