"""The shipped systemd unit, judged by systemd itself where it is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from support import tinymodel
from support.daemons import DaemonProcess

from edged.broker import EmbeddedBroker
from edged.errors import ExitCode

UNIT = Path(__file__).parents[2] / "configs" / "systemd" / "edged.service"
MAX_EXPOSURE = 20  # tenths; the scale of `systemd-analyze security` ends at 100, "OK" at 40


def settings() -> dict[str, list[str]]:
    """Every `Key=value` line of the [Service] section; a key may come more than once."""
    section = UNIT.read_text().partition("[Service]")[2].partition("[Install]")[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def analyze(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on a copy whose program exists; skip where systemd is not installed."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/edged/bin/edged", shutil.which("true") or "/bin/true"))
    return subprocess.run([program, *arguments, str(copy)], capture_output=True, text=True, check=False, timeout=60)


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    """Every key and value is known to systemd: it says nothing at all."""
    done = analyze(tmp_path, "verify", "--man=no")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_exposure_is_low(tmp_path: Path) -> None:
    """systemd's own score of the sandbox stays under 2.0 of 10."""
    done = analyze(tmp_path, "security", "--offline=yes", "--no-pager", f"--threshold={MAX_EXPOSURE}")
    if "--offline" in done.stderr:
        pytest.skip("this systemd-analyze has no --offline")
    assert done.returncode == 0, done.stdout[-400:] + done.stderr


def test_what_the_daemon_relies_on_is_there() -> None:
    """Readiness, watchdog, reload, state, and the right to raise priorities, which the sandbox must not take away."""
    found = settings()
    expected = {
        "Type": "notify", "ExecReload": "/bin/kill -HUP $MAINPID", "Restart": "always", "StateDirectory": "edged",
        "RuntimeDirectory": "edged", "DynamicUser": "yes",
        "AmbientCapabilities": "CAP_SYS_NICE", "CapabilityBoundingSet": "CAP_SYS_NICE",
        "ProtectSystem": "strict", "NoNewPrivileges": "yes", "PrivateDevices": "yes",
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == {key: [value] for key, value in expected.items()}
    assert int(found["WatchdogSec"][0]) > 0
    assert not {"RestrictRealtime", "PrivateUsers", "ProcSubset"} & set(found)
    # Granted only what the daemon uses: it writes its state and has a socket for local producers; it locks no
    # memory.
    assert not {"CacheDirectory", "LimitMEMLOCK"} & set(found)


def test_a_mistake_of_the_operator_is_not_repeated_for_ever() -> None:
    """The exit codes that a restart cannot mend stop the service; a missing broker does not."""

    stops = {int(code) for code in settings()["RestartPreventExitStatus"][0].split()}
    assert stops == {ExitCode.USAGE, ExitCode.BAD_DATA, ExitCode.CONFIG}


@pytest.mark.broker
def test_a_start_that_measures_asks_for_the_time(
    mosquitto: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measuring may take selection.total_s for each model, far more than the unit gives a start; READY ends it."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    config = {
        "device": "first-start", "models": [{"name": "dense", "bundle": "dense"}],
        "selection": {"candidate_s": 200, "total_s": 1000},
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with DaemonProcess(tmp_path, mosquitto.port, config) as daemon:
            said = [sock.recv(4096).decode().split("\n")[0]]
            while said[-1] != "READY=1":
                said.append(sock.recv(4096).decode().split("\n")[0])
            assert daemon.stop() == 0
    asked = [line for line in said[:-1] if not line.startswith("STATUS=")]
    assert set(asked) == {"EXTEND_TIMEOUT_USEC=1200000000"}
