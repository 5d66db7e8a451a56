"""What a child process takes, measured from outside, and its end when it is too much."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from edged import limits
from edged.limits import Limits, Watch

HOLDS = "import time\nheld = bytearray(b'x') * (200 << 20)\nprint(flush=True)\ntime.sleep(60)"
NESTED = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {HOLDS!r}])"


@pytest.fixture(params=[HOLDS, NESTED], ids=["itself", "its child"])
def holder(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds 200 MiB, or whose child does, in a group of its own."""
    command = [sys.executable, "-c", request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_too_much_memory_ends_the_whole_group(holder: subprocess.Popen[bytes]) -> None:
    """Below the limit nothing happens; above it every process of the group is killed, and the limit is named."""
    assert not Watch(holder.pid, Limits(memory=1 << 30)).tick()
    watch = Watch(holder.pid, Limits(memory=100 << 20))
    assert watch.tick()
    assert watch.broken == "held 0.2 GiB of memory, 0.1 GiB is the limit"
    assert holder.wait(10) == -signal.SIGKILL
    while Watch(holder.pid, Limits(memory=1)).tick():  # until the last of the group has gone
        time.sleep(0.01)


def test_too_much_time(holder: subprocess.Popen[bytes]) -> None:
    """A child that hangs is told so."""
    watch = Watch(holder.pid, Limits(seconds=0.0))
    assert watch.tick()
    assert watch.broken == "was not done after 0 s"
    assert holder.wait(10) == -signal.SIGKILL


def test_without_a_limit_most_of_what_is_free() -> None:
    """90 % of the machine's own figure, which moves while the test runs."""
    assert Limits(memory=5).memory_bytes == 5
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    assert limits.available() == pytest.approx(free, rel=0.3)
    assert Limits().memory_bytes == pytest.approx(0.9 * free, rel=0.3)
