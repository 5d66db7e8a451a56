"""What a connection logs in with: TLS files and the password, read again without a restart.

Each new connection uses what the files hold then. What cannot be used leaves the last good files in use, is told in the
log once, and counted as `login_files_refused`. Files that read well and that the broker refuses all the same are used
in turn with those it accepted before, until it accepts one of both.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from typing import Any

from edged.clock import NS_PER_S, now_ns
from edged.errors import BadDataError
from edged.transports.counters import Counters
from edged.transports.mqtt_settings import MqttSettings
from edged.wholefile import first_line

_log = logging.getLogger(__name__)
_LOOK_NS = NS_PER_S  # how often the files are looked at while a connection is up
_Fingerprint = tuple[tuple[int, int, int] | None, ...]


class Login:
    """The TLS context and password of the next connection. The network thread's, once it is made.

    Raises BadDataError when a TLS file is missing or unusable. `context` is what paho takes for an `SSLContext`; None
    without TLS.
    """

    def __init__(self, settings: MqttSettings, counters: Counters) -> None:
        self._settings, self._counters = settings, counters
        self._password, self._told_password = settings.password, ""
        self._paths = [path for path in _tls_files(settings) if path is not None]
        self._seen = self._tried = self._fingerprint()
        self._newest = self._using = context(*_tls_files(settings)) if settings.tls else None
        self._good: ssl.SSLContext | None = None  # the last that the broker accepted
        self._look_ns = now_ns() + _LOOK_NS
        self.context: Any = _Current(self) if settings.tls else None

    @property
    def watched(self) -> bool:
        """Whether there are files that may change."""
        return bool(self._paths)

    def using(self) -> ssl.SSLContext | None:
        """Return the context of the next connection; None without TLS."""
        return self._using

    def password(self) -> str | None:
        """Return the password of the next connection, read now where it is in a file."""
        path = self._settings.password_file
        if path is None:
            return self._password
        try:
            self._password, self._told_password = first_line(path), ""
        except (OSError, ValueError) as error:
            wrong = f"{path}: {getattr(error, 'strerror', None) or error}"
            if wrong != self._told_password:
                self._told_password = wrong
                self._refuse("the password file cannot be used, the last password stays: %s", wrong)
        return self._password

    def refresh(self) -> bool:
        """Read the TLS files again if they are other ones than those read last; True when they are new and good."""
        found = self._fingerprint()
        if found == self._tried:
            return False
        self._tried = self._seen = found
        try:
            self._newest = self._using = context(*_tls_files(self._settings))
        except BadDataError as error:
            self._refuse("the new TLS files cannot be used, the former ones stay in use: %s", str(error))
            return False
        return True

    def renewed(self) -> bool:
        """Look at the TLS files, at most once a second; True when there are new and good ones.

        They are read when two looks in a row find the same: who replaces three files does it one after the other.
        """
        now = now_ns()
        if now < self._look_ns:
            return False
        self._look_ns = now + _LOOK_NS
        found, seen = self._fingerprint(), self._seen
        self._seen = found
        return found == seen and self.refresh()

    def accepted(self) -> None:
        """Note that the broker accepted the context in use."""
        self._good = self._using

    def rejected(self) -> None:
        """Note that a connection failed over the login: the next one uses the other context, if there is one."""
        if self._good is None or self._good is self._newest:
            return
        if self._using is self._newest:
            self._using = self._good
            self._refuse("the broker does not accept the new TLS files, the former ones are used: %s", self._places())
        else:
            self._using = self._newest

    def _places(self) -> str:
        return ", ".join(map(str, self._paths))

    def _refuse(self, text: str, what: str) -> None:
        self._counters.add("login_files_refused")
        _log.warning(text, what)

    def _fingerprint(self) -> _Fingerprint:
        return tuple(_facts(path) for path in self._paths)


class _Current:
    """An `SSLContext` for paho, which takes one for good: it makes its sockets with the context in use."""

    check_hostname = True

    def __init__(self, login: Login) -> None:
        self._login = login

    def wrap_socket(self, sock: Any, server_hostname: str | None = None, **_options: object) -> ssl.SSLSocket:
        """Return the connection with its handshake made; closed when that fails, where paho would leave it open."""
        context = self._login.using()
        assert context is not None  # noqa: S101 (made with TLS only)
        return context.wrap_socket(sock, server_hostname=server_hostname)


def _facts(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (the same by another name, and this is the shorter one)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def _tls_files(settings: MqttSettings) -> tuple[Path | None, Path | None, Path | None]:
    return settings.ca_file, settings.cert_file, settings.key_file


def context(ca: Path | None, cert: Path | None, key: Path | None) -> ssl.SSLContext:
    """Read the TLS files: who is trusted (else the system's), and the client's certificate with its key.

    Raises BadDataError for a file that is missing or unusable, and for a key that is another certificate's.
    """
    paths = [path for path in (ca, cert, key) if path is not None]
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        for path in paths:
            if not path.is_file():
                raise BadDataError(str(path), "no such file")
        if cert is not None:
            # An empty password: without one OpenSSL would ask for it on the terminal, and wait.
            made.load_cert_chain(cert, key, password="")
        if ca is None:
            made.load_default_certs()
        else:
            made.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        where = ", ".join(map(str, paths))
        raise BadDataError(where, f"not usable for TLS: {error}", "PEM files, the key without a password") from error
    return made
