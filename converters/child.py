"""Child processes: one job file in, one result file out, a line for every stage begun.

Native libraries below us can kill their process (a converter's SIGSEGV, a runtime's on a bad model). So each runs in
a child, and a child's death becomes one error that names the stage. What the child prints is kept in a log, shown
only when it failed or when asked for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edged import childprocess, errors
from edged.errors import BadDataError, EdgedError, InternalError, UnavailableError, UsageError

OnStage = Callable[[str], None]
Work = Callable[[dict[str, Any], Path, OnStage], dict[str, Any]]

_LOG_LINES = 12
_ERRORS: Mapping[str, type[EdgedError]] = {
    cls.__name__: cls for cls in (BadDataError, InternalError, UnavailableError, UsageError, errors.ConfigError)
}


@dataclass(frozen=True)
class DiedError(Exception):
    """A child ended without a result. code: its exit status, -N for signal N. log: its last lines."""

    stage: str
    code: int
    log: str

    @property
    def killed(self) -> bool:
        """Whether a signal ended it."""
        return self.code < 0

    @property
    def reason(self) -> str:
        """How it ended: `was killed by SIGSEGV while converting`, or its status and the last line of the log."""
        return childprocess.ended(self.code, childprocess.last_line(self.log), self.stage)


def run(module: str, job: Mapping[str, Any], folder: Path, on_stage: OnStage) -> dict[str, Any]:
    """Run `python -m module` on `job` in `folder`, which keeps `job.json`, `result.json` and `log`.

    Raises the EdgedError that the child raised, or DiedError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(job))
    stage, returncode = _watch(module, folder, on_stage)
    result = folder / "result.json"
    if returncode != 0 or not result.exists():
        raise DiedError(stage, returncode, log_tail(folder))
    value: dict[str, Any] = json.loads(result.read_text())
    if "error" in value:
        error = value["error"]
        raise _ERRORS[error["class"]](error["where"], error["what"], error["hint"])
    return value


def _watch(module: str, folder: Path, on_stage: OnStage) -> tuple[str, int]:
    """Start the child, tell its stages, wait; return the last stage and the exit status (negative: a signal)."""
    read, write = os.pipe()
    stage = "starting"
    with (folder / "log").open("wb") as log, os.fdopen(read) as stages:
        args, env = (str(folder), str(write)), _environment(folder)
        process = childprocess.start(module, *args, cwd=folder, env=env, stdout=log, stderr=log, pass_fds=[write])
        os.close(write)
        try:
            for line in stages:
                stage = line.strip()
                on_stage(stage)
            return stage, process.wait()
        finally:
            process.kill()
            process.wait()


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment in which two runs give the same bytes."""
    return childprocess.environment(
        PYTHONHASHSEED="0",
        KERAS_HOME=str(folder),  # Keras writes a file into it at import
        TF_CPP_MIN_LOG_LEVEL="2",
        TF_ENABLE_ONEDNN_OPTS="0",
        TF_DETERMINISTIC_OPS="1",
        CUDA_VISIBLE_DEVICES="-1",  # the reference is the CPU
    )


def log_tail(folder: Path, lines: int = _LOG_LINES) -> str:
    """Return the last lines of a child's log."""
    return "\n".join((folder / "log").read_text(errors="replace").splitlines()[-lines:])


def main(work: Work) -> None:
    """Be the child: read the job, do `work` in its folder, write its result or the EdgedError it raised."""
    folder, descriptor = Path(sys.argv[1]), int(sys.argv[2])
    job = json.loads((folder / "job.json").read_text())
    with os.fdopen(descriptor, "w", buffering=1) as stages:

        def on_stage(text: str) -> None:
            stages.write(text + "\n")

        try:
            result = work(job, folder, on_stage)
        except EdgedError as exc:
            named = next(name for name, cls in _ERRORS.items() if isinstance(exc, cls))
            result = {"error": {"class": named, "where": exc.where, "what": exc.what, "hint": exc.hint}}
    (folder / "result.json").write_text(json.dumps(result))
