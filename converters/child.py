"""Child processes: one job file in, one result file out, a line for every stage begun.

Native libraries below us can kill their process (a converter's SIGSEGV, a runtime's on a bad model), hang, or take all
memory. So each runs in a child with limits, and a child's death becomes one error that names the stage. What the child
prints is kept in a log, shown only when it failed or when asked for.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any

from converters import disk
from edged import childprocess, errors
from edged.errors import BadDataError, EdgedError, InternalError, UnavailableError, UsageError
from edged.limits import Limits, Watch

OnStage = Callable[[str], None]
Work = Callable[[dict[str, Any], Path, OnStage], dict[str, Any]]

_LOG_LINES, _LOG_BYTES = 12, 1 << 16
_TICK_S = 0.2
# A pipe's capacity, see pipe(7).
_PIPE = 1 << 16
_ERRORS: Mapping[str, type[EdgedError]] = {
    cls.__name__: cls for cls in (BadDataError, InternalError, UnavailableError, UsageError, errors.ConfigError)
}


@dataclass(frozen=True)
class DiedError(Exception):
    """A child ended without a result. code: its exit status, -N for signal N. log: its last lines.

    broken: the limit that it broke, in words; empty where it ended by itself.
    """

    stage: str
    code: int
    log: str
    broken: str = ""

    @property
    def by_chance(self) -> bool:
        """Whether somebody else ended it, or a limit did: no verdict on the model, the next start may go well."""
        return bool(self.broken) or self.code in (-signal.SIGKILL, -signal.SIGTERM)

    @property
    def killed(self) -> bool:
        """Whether a signal ended it."""
        return self.code < 0

    @property
    def reason(self) -> str:
        """How it ended: `was killed by SIGSEGV while converting`, or its status and the last line of the log."""
        if self.broken:
            return f"{self.broken} while {self.stage}"
        return childprocess.ended(self.code, childprocess.last_line(self.log), self.stage)


def run(
    module: str, job: Mapping[str, Any], folder: Path, on_stage: OnStage, limits: Limits | None = None
) -> dict[str, Any]:
    """Run `python -m module` on `job` in `folder`, which keeps `job.json`, `result.json` and `log`.

    Raises the EdgedError that the child raised, DiedError, or OSError when it died in a folder without room.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(job))
    result = folder / "result.json"
    result.unlink(missing_ok=True)
    ended = _watch(module, folder, on_stage, limits or Limits())
    if ended.code != 0 or not result.exists():
        disk.check_room(folder)
        raise ended
    value: dict[str, Any] = json.loads(result.read_text())
    if "error" in value:
        raise error(value["error"])
    return value


def error(plain: Mapping[str, str]) -> EdgedError:
    """Return the EdgedError that `plain_error` made plain."""
    return _ERRORS[plain["class"]](plain["where"], plain["what"], plain["hint"])


def plain_error(exc: EdgedError) -> dict[str, str]:
    """Return an EdgedError as JSON can carry it."""
    named = next(name for name, cls in _ERRORS.items() if isinstance(exc, cls))
    return {"class": named, "where": exc.where, "what": exc.what, "hint": exc.hint}


def _watch(module: str, folder: Path, on_stage: OnStage, limits: Limits) -> DiedError:
    """Start the child, tell its stages, wait; return how it ended, which is an error only without a result."""
    read, write = os.pipe()
    with (folder / "log").open("ab") as log, os.fdopen(read, "rb", buffering=0) as stages:
        args, env = (str(folder), str(write)), _environment(folder)
        process = childprocess.start(
            module, *args, cwd=folder, env=env, stdout=log, stderr=log, pass_fds=[write], start_new_session=True
        )
        os.close(write)
        watch = Watch(process.pid, limits)
        try:
            stage = _follow(process, stages, on_stage, watch)
            while process.poll() is None and not watch.tick():
                with suppress(TimeoutExpired):
                    process.wait(_TICK_S)
            code = process.wait()
        finally:
            watch.kill()
            process.wait()
    return DiedError(stage, code, log_tail(folder), watch.broken)


def _follow(process: Popen[bytes], stages: RawIOBase, on_stage: OnStage, watch: Watch) -> str:
    """Tell every stage until the child closes its end, ends or breaks a limit; return the last stage.

    That it ends is looked for as well: a process that it forked may hold the pipe open for ever.
    """
    stage, rest, ended = "starting", b"", False
    while not ended and not watch.tick():
        # Before the pipe: all that it wrote in its life is then in there, and one read takes what a pipe holds.
        ended = process.poll() is not None
        if not select.select([stages], [], [], 0 if ended else _TICK_S)[0]:
            continue
        read = stages.read(_PIPE)
        if not read:
            break
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            stage = line.decode(errors="replace").strip()
            on_stage(stage)
    return stage


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which two runs give the same bytes."""
    return childprocess.environment(
        PYTHONHASHSEED="0",
        TMPDIR=str(folder),  # what a killed child leaves goes with its folder
        KERAS_HOME=str(folder),  # Keras writes a file into it at import
        TF_CPP_MIN_LOG_LEVEL="2",
        TF_ENABLE_ONEDNN_OPTS="0",
        TF_DETERMINISTIC_OPS="1",
        CUDA_VISIBLE_DEVICES="-1",  # the reference is the CPU
    )


def log_tail(folder: Path, lines: int = _LOG_LINES) -> str:
    """Return the last lines of a child's log."""
    with (folder / "log").open("rb") as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
        return "\n".join(log.read(_LOG_BYTES).decode(errors="replace").splitlines()[-lines:])


def main(work: Work) -> None:
    """Be the child: read the job, do `work` in its folder, write its result or the EdgedError it raised."""
    childprocess.die_with_parent()
    folder, descriptor = Path(sys.argv[1]), int(sys.argv[2])
    job = json.loads((folder / "job.json").read_text())
    with os.fdopen(descriptor, "w", buffering=1) as stages:

        def on_stage(text: str) -> None:
            stages.write(text + "\n")

        try:
            result = work(job, folder, on_stage)
        except EdgedError as exc:
            result = {"error": plain_error(exc)}
    (folder / "result.json").write_text(json.dumps(result))
