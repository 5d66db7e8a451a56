"""Words to the service manager: one datagram each to the socket in $NOTIFY_SOCKET, as sd_notify(3) describes them.

Without the variable (no systemd, or a unit that is not Type=notify) every call does nothing. Nothing here raises: a
service manager that cannot be reached is no reason to stop serving.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from edged.clock import now_ns

_TIMEOUT_S = 0.5  # a full socket means that systemd is behind; rather lose one word than hang
_US_PER_S = 1_000_000


class Notifier:
    """The service manager's end. `environ` is `os.environ` unless a test gives another.

    watchdog_s: the service manager restarts us when `watchdog` is not called for so many seconds (call it at half of
    it); None when it does not watch this process.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self.watchdog_s = _watchdog_s(environ) if self._address else None

    @property
    def enabled(self) -> bool:
        """Whether there is anybody to tell."""
        return self._address is not None

    def ready(self, status: str = "") -> bool:
        """Say that start-up, or a reload, is done. Like every word: True when it was delivered."""
        return self._send("READY=1", *_status(status))

    def reloading(self) -> bool:
        """Say that the configuration is being read again; `ready` must follow."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={now_ns() // 1000}")

    def stopping(self, status: str = "") -> bool:
        """Say that the end has begun."""
        return self._send("STOPPING=1", *_status(status))

    def status(self, text: str) -> bool:
        """Say what goes on, for a person; it stands until the next text."""
        return self._send(*_status(text))

    def extend(self, seconds: float) -> bool:
        """Say that what goes on now (the start, say) may take so long from now, whatever the unit allows."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * _US_PER_S)}")

    def watchdog(self) -> bool:
        """Say that all is alive."""
        return self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> bool:
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(_TIMEOUT_S)
                sock.sendto("\n".join(lines).encode(errors="replace"), self._address)
        except OSError:
            return False
        return True


def _address(path: str) -> str | None:
    # "@" stands for the NUL that begins an abstract name. vsock addresses are for virtual machines as a whole.
    if path.startswith("@"):
        return "\0" + path[1:]
    return path if path.startswith("/") else None


def _status(text: str) -> tuple[str, ...]:
    return (f"STATUS={' '.join(text.split())}",) if text else ()


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    # A child of ours inherits the variables, but not the duty: WATCHDOG_PID says whose it is.
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    text = environ.get("WATCHDOG_USEC", "")
    return int(text) / _US_PER_S if text.isascii() and text.isdigit() and int(text) else None
