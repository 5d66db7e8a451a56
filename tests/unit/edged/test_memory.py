"""Memory of a process: locked where nothing can go wrong by it, and returned; each in a process of its own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from edged import memory
from edged.memory import SLACK, OwnMemory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locking is Linux's")

START = """
import os, resource, sys
from pathlib import Path
from edged.memory import OwnMemory

def locked():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmLck:"))
"""


def run(code: str) -> list[str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", START + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PYTHONPATH": path}, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not memory._unlimited(), reason="locking memory is not permitted here")
def test_all_is_locked_and_nothing_grows_by_it() -> None:
    """The kernel counts locked pages, what is only reserved stays untouched, later memory is locked, and released."""
    own, before, after, later, released = run("""
memory = OwnMemory("auto")
reserved = bytearray(0)
import mmap
untouched = mmap.mmap(-1, 256 << 20)
pages = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4
before = pages()
memory.settle()
print(memory.told, before, pages())
more = mmap.mmap(-1, 64 << 20)
print(locked())
memory.release()
print(locked())
""")
    assert own == "locked"
    assert int(after) <= int(before) + 1024  # KiB
    assert int(later) > (256 + 64) << 10
    assert int(released) == 0


def test_a_limit_means_that_nothing_is_locked() -> None:
    """Without the right to lock any amount nothing is locked, however high the limit: memory must not run out by it."""
    told, amount = run("""
most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
most = 1 << 40 if most == resource.RLIM_INFINITY else most
resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))
if os.geteuid() == 0:
    os.setuid(65534)
memory = OwnMemory("auto")
memory.settle()
print(memory.told.replace(" ", "_"), locked())
""")
    assert (told, amount) == ("not_permitted", "0")


def test_off_locks_nothing() -> None:
    """What was turned off is told as such."""
    assert run("""
memory = OwnMemory("off")
memory.settle()
print(memory.told, locked())
""") == ["off", "0"]


def test_the_second_time_only_where_memory_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settling takes its time: without growth there is nothing to win."""
    now, calls = [50 << 20], []
    monkeypatch.setattr(memory, "resident", lambda _: now[0])
    monkeypatch.setattr(memory, "return_memory", lambda: calls.append(now[0]))
    own = OwnMemory("off")
    for grown in (0, SLACK, SLACK + 1):
        now[0] = (50 << 20) + grown
        own.settle()
    assert calls == [50 << 20, (50 << 20) + SLACK + 1]


@pytest.mark.parametrize(("limit", "expected"), [(resource.RLIM_INFINITY, True), (8 << 20, False)])
def test_a_namespace_is_no_kernel(monkeypatch: pytest.MonkeyPatch, limit: int, expected: bool) -> None:
    """Root of a user namespace has the capability by name; the limit holds for it all the same."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    texts = {"/proc/self/status": "CapEff:\t000001ffffffffff\n", "/proc/self/uid_map": "0 100000 65536\n"}
    monkeypatch.setattr(memory.Path, "read_text", lambda path: texts[str(path)])
    assert memory._unlimited() is expected
