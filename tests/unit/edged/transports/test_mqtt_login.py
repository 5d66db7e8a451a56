"""What a connection logs in with: read again, kept when the new cannot be used, taken in turn when it is refused."""

from __future__ import annotations

import logging
import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from support import require
from support.brokers import issue, tls_files

from edged.errors import BadDataError
from edged.transports import mqtt_login
from edged.transports.counters import Counters
from edged.transports.mqtt_login import Login
from edged.transports.mqtt_settings import MqttSettings


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pki")
    tls_files(directory)
    issue(directory, "second", "press-08")
    return directory


class Files:
    """The TLS files of a device, and its login; looks need not wait."""

    def __init__(self, pki: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mqtt_login, "_LOOK_NS", 0)
        self._pki, self.directory = pki, directory
        self.put("client")
        self.settings = MqttSettings(
            "h", tls=True, ca_file=pki / "ca.pem", cert_file=directory / "pem", key_file=directory / "key"
        )
        self.counters = Counters()
        self.login = Login(self.settings, self.counters)

    def put(self, name: str, *kinds: str) -> None:
        """Replace certificate and key, or one of them."""
        for kind in kinds or ("pem", "key"):
            shutil.copy(self._pki / f"{name}.{kind}", self.directory / "part")
            (self.directory / "part").replace(self.directory / kind)

    def refused(self) -> int:
        return self.counters.snapshot().get("login_files_refused", 0)


@pytest.fixture
def files(pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(pki, tmp_path, monkeypatch)


def test_new_files_are_seen_when_they_stay_as_they_are(files: Files) -> None:
    """Two looks in a row must find the same, so that half of a rotation is not read."""
    first = files.login.using()
    assert not files.login.renewed()
    files.put("second", "pem")
    assert not files.login.renewed()
    files.put("second", "key")
    assert not files.login.renewed()
    assert files.login.renewed()
    assert files.login.using() is not first
    assert not files.login.renewed()
    assert files.refused() == 0


def test_a_new_connection_does_not_wait_for_a_second_look(files: Files) -> None:
    """It uses what the files hold now."""
    first = files.login.using()
    assert not files.login.refresh()
    files.put("second")
    assert files.login.refresh()
    assert files.login.using() is not first


def test_files_that_cannot_be_used_leave_the_last(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """A key that does not fit, a file that is gone: told once each, and taken up once they are good."""
    first = files.login.using()
    files.put("second", "pem")
    assert [files.login.renewed() for _ in range(3)] == [False] * 3
    (files.directory / "key").unlink()
    assert [files.login.renewed() for _ in range(3)] == [False] * 3
    assert (files.login.using(), files.refused()) == (first, 2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    files.put("second", "key")
    assert [files.login.renewed() for _ in range(2)] == [False, True]


def test_files_that_the_broker_refuses_take_turns_with_those_it_took(files: Files) -> None:
    """Until it accepts one of both; with none accepted before there is nothing to go back to."""
    login = files.login
    first = login.using()
    login.rejected()
    assert login.using() is first
    login.accepted()
    files.put("second")
    assert login.refresh()
    second = login.using()
    login.rejected()
    assert (login.using(), files.refused()) == (first, 1)
    login.rejected()
    assert login.using() is second
    login.accepted()
    login.rejected()
    assert (login.using(), files.refused()) == (second, 1)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(pki: Path, tmp_path: Path) -> None:
    """OpenSSL would ask on the terminal, and the daemon wait for the answer."""
    require.programs("openssl")
    words = ["openssl", "rsa", "-aes128", "-passout", "pass:secret", "-out", str(tmp_path / "locked.key")]
    made = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True)
    subprocess.run(words, input=made.stdout, check=True, capture_output=True)
    settings = MqttSettings("h", tls=True, cert_file=pki / "client.pem", key_file=tmp_path / "locked.key")
    with pytest.raises(BadDataError, match="the key without a password"):
        Login(settings, Counters())


def test_the_servers_certificate_and_name_are_checked(files: Files) -> None:
    """Also by a context that came by a rotation."""
    files.put("second")
    files.login.refresh()
    context = files.login.using()
    assert context is not None
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_the_password_is_what_the_file_holds_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last one stays while the file cannot be read; that is told once, without what is in it."""
    path = tmp_path / "pw"
    path.write_text("one\n")
    counters = Counters()
    login = Login(MqttSettings("h", username="u", password="given", password_file=path), counters)  # noqa: S106
    assert login.password() == "one"
    path.write_text("two\n")
    assert login.password() == "two"
    path.write_bytes(b"s3cret\xff")
    assert [login.password() for _ in range(3)] == ["two"] * 3
    path.unlink()
    assert login.password() == "two"
    assert counters.snapshot() == {"login_files_refused": 2}
    assert "s3cret" not in caplog.text
    path.write_text("three\n")
    assert login.password() == "three"
    assert (login.watched, login.context, login.using()) == (False, None, None)


def test_a_file_replaced_by_one_of_the_same_size_and_time_is_seen(files: Files) -> None:
    """By its inode: a copy may keep the time stamp."""
    path = files.directory / "pem"
    stamp = path.stat()
    files.put("second")
    path.write_bytes(path.read_bytes()[: stamp.st_size].ljust(stamp.st_size))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert not files.login.renewed()
    assert files.login.renewed() or files.refused()
