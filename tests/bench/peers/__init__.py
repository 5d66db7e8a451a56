"""What the daemon is measured beside: built, started, asked, and watched for who else used the machine meanwhile.

Needs gcc and libmosquitto (Debian: gcc, libc6-dev, libmosquitto-dev) and mosquitto.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).parent
NS_PER_US = 1000
# A figure is taken again when others, or the hypervisor, used more than this share of one core meanwhile.
FOREIGN, TRIES = 0.10, 4
Figures = dict[str, Any]


def build(folder: Path) -> None:
    """Compile the C programs into `folder`; ends the benchmark with one line where that cannot be."""
    for name, libraries in (("load", ("-lmosquitto", "-lm", "-lpthread")), ("echo", ("-lmosquitto",))):
        command = ["gcc", "-O2", "-o", str(folder / name), str(HERE / f"{name}.c"), *libraries]
        if shutil.which("gcc") is None or subprocess.run(command, check=False, capture_output=True).returncode:
            report.lacking("the C peers cannot be built (apt-get install gcc libc6-dev libmosquitto-dev)")


@contextlib.contextmanager
def running(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block runs."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([str(word) for word in command], **{**quiet, **options})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def python(name: str, *words: object) -> list[str]:
    """The command of one of the Python peers."""
    return [sys.executable, str(HERE / name), *map(str, words)]


def load(folder: Path, *, prefix: Sequence[str] = (), **options: object) -> Figures:
    """Run the C requester; returns what it printed."""
    command = [*prefix, str(folder / "load"), *(f"{name}={value}" for name, value in options.items())]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    try:
        found: Figures = json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stdout + done.stderr)[-300:]}
    return found


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process that live now, from the scheduler's own count."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total


def with_cpu(pid: int, ask: Callable[[], Figures]) -> Figures:
    """Ask, and add the CPU time in µs that the process used for each answer."""
    before = cpu_ns(pid)
    found = ask()
    if found.get("answered"):
        found["responder_us"] = (cpu_ns(pid) - before) / NS_PER_US / found["answered"]
    return found


def undisturbed(ask: Callable[[], Figures]) -> Figures:
    """Ask again while others disturb, a few times; returns the least disturbed answer. `foreign`: their share."""
    best: Figures | None = None
    for _ in range(TRIES):
        before = _times()
        found = ask()
        found["foreign"] = round(_foreign(before), 3)
        if best is None or found["foreign"] < best["foreign"]:
            best = found
        if best["foreign"] <= FOREIGN:
            break
    assert best is not None
    return best


def _times() -> tuple[float, float, float]:
    """Monotonic seconds, CPU seconds of the whole machine and the hypervisor's, CPU seconds of us and our children."""
    fields = [int(n) for n in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    ticks = os.sysconf("SC_CLK_TCK")
    used, stolen = (fields[0] + fields[1] + fields[2]) / ticks, fields[7] / ticks
    own = os.times()
    ours = (
        own.user + own.system + own.children_user + own.children_system + sum(map(_living_s, _descendants(os.getpid())))
    )
    return time.monotonic(), used + stolen, ours


def _foreign(before: tuple[float, float, float]) -> float:
    after = _times()
    wall, machine, ours = (b - a for a, b in zip(before, after, strict=True))
    return max(0.0, machine - ours) / wall


def _living_s(pid: int) -> float:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(n) for n in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def interleaved(cells: Mapping[str, Callable[[], Figures]], repeats: int) -> dict[str, list[Figures]]:
    """Measure every cell `repeats` times, forth and back in turns, so that all meet the same machine."""
    found: dict[str, list[Figures]] = {name: [] for name in cells}
    for number in range(repeats):
        for name in list(cells) if number % 2 == 0 else list(cells)[::-1]:
            found[name].append(undisturbed(cells[name]))
            print(f"  {number + 1}/{repeats} {name}", end="\r", file=sys.stderr, flush=True)
    print(" " * 70, end="\r", file=sys.stderr)
    return found


def median(runs: Sequence[Figures], key: str) -> float:
    """The median of one figure over the repeats; NaN where a run has none."""
    values = [run.get(key, float("nan")) for run in runs]
    return float(statistics.median(values))


def spread(runs: Sequence[Figures], key: str, digits: int = 0) -> str:
    """Median and range, as a table shows it."""
    values = [run[key] for run in runs if key in run]
    if not values:
        return runs[0].get("error", "-")[:30]
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"
