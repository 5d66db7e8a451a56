"""Affinity and priority, each tried on a thread of its own and read back from /proc."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from edged import affinity, timeslice
from edged.affinity import ThreadPolicy

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="priorities of threads are Linux's")

T = TypeVar("T")
POLICY_FIFO = 1
# Since Linux 6.12 a thread may ask for short turns, with or without the right to more.
_SINCE_6_12 = tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 12)
_KNOWN = (platform.machine(), 8 * struct.calcsize("P")) in timeslice._NUMBERS
SLICE = ", slice 0.1 ms" if _SINCE_6_12 and _KNOWN else ""


def on_a_thread(work: Callable[[], T]) -> tuple[T, dict[str, object]]:
    """Run `work` on a thread that ends at once; return its result and what the kernel says of the thread."""
    found: list[tuple[T, dict[str, object]]] = []

    def run() -> None:
        result = work()
        tid = threading.get_native_id()
        # proc(5): after the command's name in parentheses, nice is field 19, rt_priority 40, policy 41, counted from 1.
        stat = Path(f"/proc/self/task/{tid}/stat").read_text().rpartition(")")[2].split()
        facts = {"nice": int(stat[16]), "rt_priority": int(stat[37]), "policy": int(stat[38])}
        found.append((result, facts | {"cpus": os.sched_getaffinity(tid)}))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def allowed(change: Callable[[], object]) -> bool:
    """Whether this process may do what `change` does, tried on a thread that ends."""

    def attempt() -> bool:
        try:
            change()
        except OSError:
            return False
        return True

    return on_a_thread(attempt)[0]


def may_nice() -> bool:
    return allowed(lambda: os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20))


def may_fifo() -> bool:
    return allowed(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))


@pytest.fixture(autouse=True)
def _main_thread_is_left_alone() -> object:
    """What a thread does to itself must not reach this process's main thread."""
    before = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0))
    yield
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getaffinity(0)) == before


def test_pin_moves_the_calling_thread() -> None:
    """The kernel reports the cpu asked for, for this thread alone."""
    cpu = max(os.sched_getaffinity(0))
    problem, facts = on_a_thread(lambda: affinity.pin([cpu]))
    assert problem is None
    assert facts["cpus"] == {cpu}


def test_pin_to_nothing_changes_nothing() -> None:
    """No cpus named: the thread may run everywhere it could before."""
    problem, facts = on_a_thread(lambda: affinity.pin([]))
    assert problem is None
    assert facts["cpus"] == os.sched_getaffinity(0)


@pytest.mark.parametrize("cpus", [[1023], [-1], [10**30]])
def test_a_cpu_that_is_not_there_is_told(cpus: list[int]) -> None:
    """A wrong number is reported in words, never raised, and the thread stays where it was."""
    problem, facts = on_a_thread(lambda: affinity.pin(cpus))
    assert problem == f"cpus {cpus[0]} not on this machine"
    assert facts["cpus"] == os.sched_getaffinity(0)


def test_a_cpu_missing_among_others_is_told() -> None:
    """The kernel accepts a set that is there only in part; the missing part is named."""
    cpu = min(os.sched_getaffinity(0))
    problem, facts = on_a_thread(lambda: affinity.pin([cpu, 1023]))
    assert problem == "cpus 1023 not on this machine"
    assert facts["cpus"] == {cpu}


def test_a_thread_gives_up_what_the_one_that_started_it_has() -> None:
    """Pinned, and niced as the main thread of a daemon is: it has what the process had before, on every CPU."""
    ordinary = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0))

    def raised() -> dict[str, object]:
        affinity.raise_priority("nice")
        affinity.pin([min(ordinary[1])])
        return on_a_thread(affinity.be_ordinary)[1]

    facts = on_a_thread(raised)[0]
    assert (facts["nice"], facts["cpus"], facts["policy"]) == (*ordinary, 0)


def test_nice_and_auto_set_the_nice_value() -> None:
    """`nice`, and `auto` before it thinks of FIFO, give the thread nice -20."""
    if not may_nice():
        pytest.skip("nice -20 is not permitted here")
    for mode in ("nice", "auto"):
        achieved, facts = on_a_thread(lambda mode=mode: affinity.raise_priority(mode))  # type: ignore[misc]
        assert achieved == "nice -20"
        assert (facts["nice"], facts["policy"]) == (-20, 0)


def test_fifo_sets_the_realtime_policy() -> None:
    """`fifo` gives the thread SCHED_FIFO with priority 50."""
    if not may_fifo():
        pytest.skip("SCHED_FIFO is not permitted here")
    achieved, facts = on_a_thread(lambda: affinity.raise_priority("fifo"))
    assert achieved == "fifo 50"
    assert (facts["policy"], facts["rt_priority"]) == (POLICY_FIFO, 50)


def test_off_changes_nothing() -> None:
    """`off` leaves policy and nice value as they were."""
    achieved, facts = on_a_thread(lambda: affinity.raise_priority("off"))
    assert achieved == "off"
    assert (facts["nice"], facts["policy"]) == (os.getpriority(os.PRIO_PROCESS, 0), 0)


UNPRIVILEGED = """
import os, resource
from edged.affinity import ThreadPolicy  # before the change of user, who may not be able to read it
for limit in (resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO):
    resource.setrlimit(limit, (0, 0))
if os.geteuid() == 0:
    os.setuid(65534)
for mode in ("auto", "fifo", "nice", "off"):
    print(ThreadPolicy((min(os.sched_getaffinity(0)),), mode).apply().partition(", ")[2])
print(ThreadPolicy((), "nice", -1).apply())
print(ThreadPolicy((), "auto", 2).apply(), os.getpriority(os.PRIO_PROCESS, 0))
"""


def test_what_is_not_permitted_is_told_and_not_fatal() -> None:
    """Without the right to raise priorities every mode comes back with words, in a process that may do neither."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED], capture_output=True, text=True, check=False, env={"PYTHONPATH": path}
    )
    assert done.stdout.splitlines() == [
        f"nice -20 not permitted, fifo 50 not permitted{SLICE}", f"fifo 50 not permitted{SLICE}",
        f"nice -20 not permitted{SLICE}", "off", f"nice -20 not permitted{SLICE}",
        f"nice -10 not permitted, fifo 48 not permitted, nice 10{SLICE} 10",
    ], done.stderr  # fmt: skip


def test_auto_takes_fifo_where_nice_is_not_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second choice is tried when the first is refused."""
    if not may_fifo():
        pytest.skip("SCHED_FIFO is not permitted here")

    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refuse)
    achieved, facts = on_a_thread(lambda: affinity.raise_priority("auto"))
    assert achieved == "fifo 50"
    assert facts["policy"] == POLICY_FIFO


def test_a_policy_says_what_it_achieved() -> None:
    """One line for the status: the cpus, or what is wrong with them, and the priority."""
    cpu = min(os.sched_getaffinity(0))
    assert on_a_thread(ThreadPolicy().apply)[0] == "off"
    assert on_a_thread(ThreadPolicy((cpu,)).apply)[0] == f"cpus {cpu}, off"
    assert on_a_thread(ThreadPolicy((1023,)).apply)[0] == "cpus 1023 not on this machine, off"


@pytest.mark.parametrize(("behind", "nice", "fifo"), [(-1, -20, 51), (0, -20, 50), (1, -15, 49), (2, -10, 48)])
def test_levels_stand_behind_each_other(behind: int, nice: int, fifo: int) -> None:
    """Each level is less urgent than the one before, in both ways; what all models wait for is behind none of them."""
    if not (may_nice() and may_fifo()):
        pytest.skip("raising priorities is not permitted here")
    told, facts = on_a_thread(ThreadPolicy(realtime="nice", behind=behind).apply)
    assert (re.sub(r", session -\d+", "", told), facts["nice"]) == (f"nice {nice}{SLICE}", nice)
    told, facts = on_a_thread(ThreadPolicy(realtime="fifo", behind=behind).apply)
    assert (told, facts["rt_priority"]) == (f"fifo {fifo}", fifo)


SESSION = """
import os, sys, threading
from pathlib import Path
from edged.affinity import ThreadPolicy
told = []
thread = threading.Thread(target=lambda: told.append(ThreadPolicy((), sys.argv[1]).apply()))
thread.start()
thread.join()
print(Path("/proc/self/autogroup").read_text().split()[-1], told[0])
"""


@pytest.mark.parametrize(
    ("mode", "leads", "expected"), [("nice", True, "-20"), ("nice", False, "0"), ("off", True, "0")]
)
def test_a_session_of_its_own_is_raised_too(mode: str, leads: bool, expected: str) -> None:
    """Where sessions are weighed against each other; the one of the shell that it was started from is left alone."""
    if not may_nice() or not Path("/proc/self/autogroup").exists() or not Path("/proc/self/autogroup").read_text():
        pytest.skip("raising priorities is not permitted here, or there are no autogroups")
    command = [sys.executable, "-c", SESSION, mode]
    if not leads:  # a session of its own, led by another
        command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env, start_new_session=True)
    told = {"off": "off", "nice": f"nice -20{', session -20' if leads else ''}{SLICE}"}
    assert done.stdout.strip() == f"{expected} {told[mode]}"


def test_off_does_not_lower_either() -> None:
    """A thread that is to be left alone is left alone, whatever its model's priority."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    told, facts = on_a_thread(ThreadPolicy(realtime="off", behind=2).apply)
    assert (told, facts["nice"]) == ("off", before)


def test_a_policy_travels_to_a_child() -> None:
    """By way of JSON, as a process of its own gets it."""
    policy = ThreadPolicy((1, 2), "fifo", 2)
    assert ThreadPolicy.of(json.loads(json.dumps(dataclasses.asdict(policy)))) == policy
