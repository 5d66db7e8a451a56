"""A model file on each TFLite runtime that is installed here, each in a child process with limits.

A damaged or hostile file can kill the process that loads it, hang, or take all memory: here that costs one child.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from edged import childprocess
from edged.clock import NS_PER_S, now_ns
from edged.engines import tflite_runtime
from edged.engines.tflite_runtime import Runtime
from edged.errors import ExitCode
from edged.limits import Limits, Watch
from edged.shown import plain

_MODULE = "edged.engines.tflite_describe"


@dataclass(frozen=True)
class Tried:
    """One runtime with the file loaded. runtime: its package name; version: of the package, "" where nobody knows.

    loads: None where the runtime itself does not work. reason: its own words, or how its process ended.
    partition: see `tflite_describe`; None where it does not load, or cannot tell. pieces: how many partitions.
    """

    runtime: str
    version: str
    loads: bool | None
    reason: str = ""
    partition: tuple[int, ...] | None = None
    pieces: int = 0

    @property
    def name(self) -> str:
        """The runtime with its version: `ai-edge-litert 2.3.0`."""
        return f"{self.runtime} {self.version}".rstrip()


def tried(path: Path, limits: Limits, on_runtime: Callable[[str], object] = str) -> tuple[Tried, ...]:
    """Load a file with each installed runtime, one after the other.

    limits: the memory of each child process, the time of all together: what one leaves of its share is the next one's.
    on_runtime: told the name of each before it starts.
    """
    here = [runtime for runtime in tflite_runtime.RUNTIMES if runtime.installed]
    end_ns = now_ns() + int(limits.seconds * NS_PER_S)
    found = []
    for at, runtime in enumerate(here):
        on_runtime(runtime.name)
        left_s = max(0, end_ns - now_ns()) / NS_PER_S
        found.append(_try(path.absolute(), runtime, replace(limits, seconds=round(left_s / (len(here) - at), 2))))
    return tuple(found)


def _try(path: Path, runtime: Runtime, limits: Limits) -> Tried:
    name, version = runtime.name, installed_version(runtime)
    with childprocess.start_answering(_MODULE, str(path), name) as child:
        try:
            told = childprocess.guarded_answer(child, Watch(child.pid, limits))
        except childprocess.NoAnswerError as exc:
            # Its own words where it refused the model, else how its process ended.
            spoke = exc.said and exc.code in (ExitCode.BAD_DATA, ExitCode.UNAVAILABLE)
            reason = plain(exc.said) if spoke else f"its process {plain(str(exc))}"
            return Tried(name, version, None if exc.code == ExitCode.UNAVAILABLE else False, reason)
    partition = None if told["partition"] is None else tuple(told["partition"])
    return Tried(name, version, loads=True, partition=partition, pieces=told["pieces"])


def installed_version(runtime: Runtime) -> str:
    """Return the version that the installer wrote down, "" where it did not: nothing of the runtime is run."""
    try:
        return metadata.version(runtime.name)
    except metadata.PackageNotFoundError:  # on the import path, but not installed as a package
        return ""
