"""The Unix socket where producers connect: no living daemon loses its own, and only the right ones enter."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from edged.clock import NS_PER_S, now_ns
from edged.errors import ConfigError, UnavailableError

MAX_PATH = 107  # bytes: sun_path of sockaddr_un, see unix(7)
_WHERE = "local.socket"
_OWNER, _GROUP = 0o600, 0o660
_LOCK_NS, _RETRY_S = 2 * NS_PER_S, 0.02


def require(path: Path, group: str | None) -> None:
    """Raise ConfigError when nobody could listen there, as far as it can be told without disturbing who does."""
    try:
        wrong = _problem(path, group)
        if not wrong:
            os.close(_directory(path.parent))
    except OSError as error:
        raise _refused(path, error) from error
    if wrong:
        raise ConfigError(_WHERE, wrong)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise _refused(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))


def _problem(path: Path, group: str | None) -> str:
    if len(os.fsencode(path)) > MAX_PATH:
        return f"{path} has {len(os.fsencode(path))} bytes, a Unix socket's path may have {MAX_PATH}"
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        return f"{path} is there and is no socket"
    return "" if group is None or _is_group(group) else f"no group is called {group!r}"


def listen(path: Path, group: str | None) -> socket.socket:
    """Listen at `path`, for this user and, if given, a group; a file left by a daemon that was killed is replaced.

    Raises ConfigError for what is wrong with path or group, UnavailableError when somebody listens there.
    """
    require(path, group)
    with contextlib.ExitStack() as undo:
        made = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        # The file gets the descriptor's mode: at no moment may others connect.
        os.fchmod(made.fileno(), _OWNER)
        try:
            with _locked(path.parent):
                _clear(path)
                made.bind(os.fspath(path))
                undo.callback(remove, path, path.lstat().st_ino)
                if group is not None:
                    os.chown(path, -1, grp.getgrnam(group).gr_gid)
                    path.chmod(_GROUP)
                made.listen()
        except OSError as error:
            raise _refused(path, error) from error
        undo.pop_all()
    return made


def remove(path: Path, inode: int) -> None:
    """Remove the socket's file, if it is still the one with this inode: a later daemon may have made its own."""
    with contextlib.suppress(OSError):
        if path.lstat().st_ino == inode:
            path.unlink()


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one daemon at a time look at a socket's file and replace it; the kernel ends it with the process."""
    fd = _directory(directory)
    try:
        _lock(fd, now_ns() + _LOCK_NS)
        yield
    finally:
        os.close(fd)


def _directory(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _refused(path: Path, error: OSError) -> ConfigError:
    hint = "under systemd: RuntimeDirectory=edged" if error.errno == errno.ENOENT else ""
    return ConfigError(_WHERE, f"cannot listen at {path}: {error.strerror or error}", hint)


def _lock(fd: int, end_ns: int) -> None:
    """Wait for the lock, but not for ever: others may hold one on a directory that they can read."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if now_ns() > end_ns:
                raise
            time.sleep(_RETRY_S)
        else:
            return


def _clear(path: Path) -> None:
    """Remove a socket's file that nobody listens at. Only a refused connection says so."""
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(0)
        refused = probe.connect_ex(os.fspath(path)) == errno.ECONNREFUSED
    if not refused:
        raise UnavailableError(_WHERE, f"another process listens at {path}", "one daemon a socket")
    path.unlink()


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
