"""The socket's file: who may connect, and who may replace it."""

from __future__ import annotations

import errno
import grp
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from edged.errors import ConfigError, UnavailableError
from edged.transports import shm_socket


@pytest.fixture
def path() -> Iterator[Path]:
    """In a short directory: the path may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="edged", dir="/tmp") as directory:
        yield Path(directory) / "s"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_owner_may_connect(path: Path, umask: int) -> None:
    """Whatever the umask, and from the first moment."""
    old = os.umask(umask)
    try:
        with shm_socket.listen(path, None):
            assert mode(path) == 0o600
    finally:
        os.umask(old)


def test_a_group_may_connect_too(path: Path) -> None:
    """Also under the umask of the systemd unit, 0077."""
    group = grp.getgrgid(os.getgid()).gr_name
    old = os.umask(0o077)
    try:
        with shm_socket.listen(path, group):
            assert (mode(path), path.stat().st_gid) == (0o660, os.getgid())
    finally:
        os.umask(old)


def test_a_group_that_may_not_be_given_leaves_no_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is no member cannot hand the file to a group: an error, and nothing stays behind."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(ConfigError, match="Operation not permitted"):
        shm_socket.listen(path, grp.getgrgid(os.getgid()).gr_name)
    assert not path.exists()


def test_a_file_left_behind_is_replaced(path: Path) -> None:
    """Nobody listens there any more: that is what a daemon killed by SIGKILL leaves."""
    shm_socket.listen(path, None).close()
    assert path.exists()
    with shm_socket.listen(path, None), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(path))


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_a_living_listener_is_left_alone(path: Path, kind: socket.SocketKind) -> None:
    """Ours or somebody else's: an error, and it still gets its connections."""
    with socket.socket(socket.AF_UNIX, kind) as other, socket.socket(socket.AF_UNIX, kind) as client:
        other.bind(str(path))
        other.listen()
        with pytest.raises(UnavailableError, match="another process listens"):
            shm_socket.listen(path, None)
        client.connect(str(path))


def test_a_listener_that_does_not_accept_is_a_living_one(path: Path) -> None:
    """Its queue is full; it may be stopped for a moment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(str(path))
        other.listen(0)
        clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(str(path))
        with pytest.raises(UnavailableError, match="another process listens"):
            shm_socket.listen(path, None)
        for client in clients:
            client.close()


def test_a_file_that_is_no_socket_is_kept(path: Path) -> None:
    """A slip of the configuration must not cost somebody his file."""
    path.write_text("precious")
    with pytest.raises(ConfigError, match="is there and is no socket"):
        shm_socket.listen(path, None)
    assert path.read_text() == "precious"


def test_what_is_wrong_is_said(path: Path) -> None:
    """A path that is too long, a group that is none, a directory that is not there."""
    with pytest.raises(ConfigError, match="a Unix socket's path may have 107"):
        shm_socket.listen(path.parent / ("x" * 108), None)
    with pytest.raises(ConfigError, match="no group is called 'nosuchgroup'"):
        shm_socket.listen(path, "nosuchgroup")
    with pytest.raises(ConfigError, match=r"cannot listen at .*No such file .*RuntimeDirectory=edged"):
        shm_socket.listen(path / "s", None)


def test_only_the_own_file_is_removed(path: Path) -> None:
    """A daemon that ends late leaves what its successor made."""
    shm_socket.listen(path, None).close()
    inode = path.stat().st_ino
    path.rename(path.with_name("old"))  # so that the number is not used again at once
    with shm_socket.listen(path, None):
        shm_socket.remove(path, inode)
        assert path.exists()
        shm_socket.remove(path, path.stat().st_ino)
        assert not path.exists()
    shm_socket.remove(path, inode)
