"""The socket's file: who may connect, and who may replace it."""

from __future__ import annotations

import errno
import grp
import os
import socket
from pathlib import Path

import pytest

from edged.errors import ConfigError, UnavailableError
from edged.transports import shm_socket


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_only_the_owner_may_connect(socket_path: Path, umask: int) -> None:
    """Whatever the umask, and from the first moment."""
    old = os.umask(umask)
    try:
        with shm_socket.listen(socket_path, None):
            assert mode(socket_path) == 0o600
    finally:
        os.umask(old)


def test_a_group_may_connect_too(socket_path: Path) -> None:
    """Also under the umask of the systemd unit, 0077."""
    group = grp.getgrgid(os.getgid()).gr_name
    old = os.umask(0o077)
    try:
        with shm_socket.listen(socket_path, group):
            assert (mode(socket_path), socket_path.stat().st_gid) == (0o660, os.getgid())
    finally:
        os.umask(old)


def test_a_group_that_may_not_be_given_leaves_no_file(socket_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is no member cannot hand the file to a group: an error, and nothing stays behind."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(ConfigError, match="Operation not permitted"):
        shm_socket.listen(socket_path, grp.getgrgid(os.getgid()).gr_name)
    assert not socket_path.exists()


def test_a_file_left_behind_is_replaced(socket_path: Path) -> None:
    """Nobody listens there any more: that is what a daemon killed by SIGKILL leaves."""
    shm_socket.listen(socket_path, None).close()
    assert socket_path.exists()
    with shm_socket.listen(socket_path, None), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(socket_path))


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_a_living_listener_is_left_alone(socket_path: Path, kind: socket.SocketKind) -> None:
    """Ours or somebody else's: an error, and it still gets its connections."""
    with socket.socket(socket.AF_UNIX, kind) as other, socket.socket(socket.AF_UNIX, kind) as client:
        other.bind(str(socket_path))
        other.listen()
        with pytest.raises(UnavailableError, match="another process listens"):
            shm_socket.listen(socket_path, None)
        client.connect(str(socket_path))


def test_a_listener_that_does_not_accept_is_a_living_one(socket_path: Path) -> None:
    """Its queue is full; it may be stopped for a moment."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(str(socket_path))
        other.listen(0)
        clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(str(socket_path))
        with pytest.raises(UnavailableError, match="another process listens"):
            shm_socket.listen(socket_path, None)
        for client in clients:
            client.close()


def test_a_file_that_is_no_socket_is_kept(socket_path: Path) -> None:
    """A slip of the configuration must not cost somebody his file."""
    socket_path.write_text("precious")
    with pytest.raises(ConfigError, match="is there and is no socket"):
        shm_socket.listen(socket_path, None)
    assert socket_path.read_text() == "precious"


def test_what_is_wrong_is_said(socket_path: Path) -> None:
    """A path that is too long, a group that is none, a directory that is not there."""
    with pytest.raises(ConfigError, match="a Unix socket's path may have 107"):
        shm_socket.listen(socket_path.parent / ("x" * 108), None)
    with pytest.raises(ConfigError, match="no group is called 'nosuchgroup'"):
        shm_socket.listen(socket_path, "nosuchgroup")
    with pytest.raises(ConfigError, match=r"cannot listen at .*No such file .*RuntimeDirectory=edged"):
        shm_socket.listen(socket_path / "s", None)


def test_only_the_own_file_is_removed(socket_path: Path) -> None:
    """A daemon that ends late leaves what its successor made."""
    shm_socket.listen(socket_path, None).close()
    inode = socket_path.stat().st_ino
    socket_path.rename(socket_path.with_name("old"))  # so that the number is not used again at once
    with shm_socket.listen(socket_path, None):
        shm_socket.remove(socket_path, inode)
        assert socket_path.exists()
        shm_socket.remove(socket_path, socket_path.stat().st_ino)
        assert not socket_path.exists()
    shm_socket.remove(socket_path, inode)
