"""`edged demo` for real, shortened: training to verdict, and its clean end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import require
from support.brokers import require_mosquitto

pytestmark = [pytest.mark.tf, pytest.mark.broker, pytest.mark.timeout(300)]
WINDOWS = 120


@pytest.fixture(autouse=True)
def needs() -> None:
    """What is missing is a skip on a laptop and a failure in CI."""
    require.packages("tensorflow", "aeon")
    require_mosquitto()


def demo(tmp_path: Path, *args: str) -> subprocess.Popen[str]:
    out = str(tmp_path / "out")
    return subprocess.Popen(
        [sys.executable, "-m", "edged", "demo", "--json", "--broker", "mosquitto", "--out", out, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def processes_of(tmp_path: Path) -> list[str]:
    """Command lines of running processes that name the test's directory, as every child of the demo does."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(tmp_path) in command and "edged demo" not in command:
            found.append(command)
    return found


def test_the_shortened_demo_passes_with_true_figures(tmp_path: Path) -> None:
    """Real data through the real path: all answered, all right, four ways agreed, and nothing is left running."""
    process = demo(tmp_path, "--windows", str(WINDOWS), "--duration", "4")
    out, log = process.communicate(timeout=280)
    assert process.returncode == 0, log
    assert "\ndemo: PASS: " in log
    figures: dict[str, Any] = json.loads(out)
    assert figures["verdict"] == "PASS"
    stream = figures["stream"]
    assert stream["answered"] == stream["expected"] == WINDOWS
    assert stream["samples"] == WINDOWS * 100
    assert stream["accuracy"] >= 0.95
    assert [way["n"] for way in figures["requests"].values()] == [WINDOWS] * 4
    # Four ways of asking and the sensors: the daemon's own count agrees with what was seen outside.
    assert figures["latency"]["total"]["n"] == 5 * WINDOWS
    assert figures["rss_bytes"] > 0
    assert "int8" in figures["model"]
    assert (figures["recordings"], figures["sensors"]) == (40, 8)
    assert any("only 40 samples" in warning for warning in figures["warnings"])
    assert "40 recordings, each replayed 3 times, by 8 sensors together" in log
    # The round trip contains the daemon's part of it.
    total = figures["latency"]["total"]
    assert total["p50_us"] < min(way["max_us"] for way in figures["requests"].values())
    assert processes_of(tmp_path) == []
    assert (tmp_path / "out/bundle/bundle.json").is_file()


def test_ctrl_c_ends_the_children_too(tmp_path: Path) -> None:
    """A person who gives up in the middle keeps no process."""
    process = demo(tmp_path)
    end = time.monotonic() + 60
    while not processes_of(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert any("converters.demo.train" in command for command in processes_of(tmp_path))
    process.send_signal(signal.SIGINT)
    _, log = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert "Traceback" not in log
    assert processes_of(tmp_path) == []
