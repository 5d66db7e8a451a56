"""Child processes of ours: how `python -m MODULE` is started, and how its end is told.

Native code can kill the process it runs in, and TensorFlow takes seconds and gigabytes: both live in children. A child
runs the interpreter and the packages of its parent, and nothing that lies in the user's working directory can stand in
for a module of it: `-m` looks in the working directory first, so that is one which holds no modules, and the import
path is absolute.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from subprocess import Popen

# The root directory: nobody keeps Python files there, and only root could.
NO_MODULES = Path("/")
_ROOT = Path(__file__).resolve().parent.parent
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_TICK_S = 0.05
_PR_SET_PDEATHSIG = 1


class NoAnswerError(Exception):
    """A child gave no answer; the text says how it ended, and follows a subject: `was killed by SIGSEGV`.

    code: its exit status, -N for signal N, None when it was not done in time. said: its last line of standard error.
    """

    def __init__(self, what: str, code: int | None, said: str = "") -> None:
        super().__init__(what)
        self.code, self.said = code, said


class Guard(Protocol):
    """Looks after a child: `tick` kills it and returns True when it broke a limit, which `broken` names."""

    broken: str

    def tick(self) -> bool:
        """Look once."""


class _Patience:
    """The guard that looks at the time alone: one look is a tick."""

    def __init__(self, seconds: float) -> None:
        self.broken = f"was not done after {seconds:.0f} s"
        self._looks = int(seconds / _TICK_S)

    def tick(self) -> bool:
        self._looks -= 1
        return self._looks <= 0


def command(module: str, *args: str) -> list[str]:
    """Return the command line of `python -m module args…`. Paths in `args` must be absolute."""
    return [sys.executable, "-m", module, *args]


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment with `more`, and with an import path on which the child finds our packages."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # An empty entry stands for the working directory, and mostly by accident: it is dropped.
    path = [str(Path(entry).absolute()) for entry in given if entry]
    # A source tree may have been found by its being the working directory. What is installed is found anyway, and must
    # not come before the standard library.
    if _ROOT.name not in _INSTALLED:
        path.insert(0, str(_ROOT))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), **more}


def start(
    module: str, *args: str, cwd: Path = NO_MODULES, env: Mapping[str, str] | None = None, **more: Any
) -> Popen[bytes]:
    """Start `python -m module args…` without standard input; `more` goes to Popen as it is.

    cwd: a directory without modules. env: the whole environment, where `environment()` is not enough.
    """
    import subprocess  # noqa: PLC0415  # a daemon that knows its bundles starts no child

    environ = environment() if env is None else env
    return subprocess.Popen(command(module, *args), cwd=cwd, env=environ, stdin=subprocess.DEVNULL, **more)


def start_answering(module: str, *args: str, **more: Any) -> Popen[bytes]:
    """Start a child whose last line on standard output will be a JSON object: see `answer`; more: as in `start`."""
    from subprocess import PIPE  # noqa: PLC0415  # as above

    return start(module, *args, stdout=PIPE, stderr=PIPE, **more)


def answer(child: Popen[bytes], timeout_s: float) -> dict[str, Any]:
    """Wait for a child of `start_answering` and return its answer; it has ended afterwards, whatever happens.

    Raises NoAnswerError when it is killed, ends with another status than 0, or is not done in time.
    """
    return guarded_answer(child, _Patience(timeout_s))


def guarded_answer(child: Popen[bytes], guard: Guard) -> dict[str, Any]:
    """`answer`, with someone who looks after the child meanwhile; NoAnswerError also when it breaks a limit."""
    try:
        out, err = _guarded(child, guard)
    finally:
        _end(child)
    return _answered(child, out, err)


def _guarded(child: Popen[bytes], guard: Guard) -> tuple[bytes, bytes]:
    from subprocess import TimeoutExpired  # noqa: PLC0415  # as above

    while True:
        ended = child.poll() is not None
        try:
            return child.communicate(timeout=_TICK_S)
        except TimeoutExpired as exc:
            # It has ended, but something that it forked holds its pipes: what it wrote itself has been read.
            if ended:
                return exc.output or b"", exc.stderr or b""
            if guard.tick():
                raise NoAnswerError(guard.broken, None) from exc


def _end(child: Popen[bytes]) -> None:
    child.kill()
    child.wait()


def _answered(child: Popen[bytes], out: bytes, err: bytes) -> dict[str, Any]:
    said = last_line(err.decode(errors="replace"))
    if child.returncode != 0:
        raise NoAnswerError(ended(child.returncode, said), child.returncode, said)
    value: dict[str, Any] = json.loads(out.splitlines()[-1])
    return value


def ended(code: int, said: str = "", while_: str = "") -> str:
    """Say how a child ended; a predicate such as `was killed by SIGSEGV while converting` or `ended with 1: no memory`.

    code: as of Popen, -N for signal N. said: the last line it wrote. while_: what it was doing.
    """
    doing = f" while {while_}" if while_ else ""
    if code >= 0:
        return f"ended with {code}{doing}" + (f": {said}" if said else "")
    # SIGKILL comes from nobody but the kernel's out-of-memory killer, as a rule.
    note = " (most often: out of memory)" if -code == signal.SIGKILL else ""
    return f"was killed by {_signal_name(-code)}{note}{doing}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal between SIGRTMIN and SIGRTMAX has no name
        return f"signal {number}"


def last_line(text: str) -> str:
    """Return the last line of `text` that says anything."""
    return (text.strip().splitlines() or [""])[-1].strip()


def die_with_parent() -> None:
    """Let the kernel end this process when its parent is killed: nobody else would (Linux; see prctl(2)).

    It also ends when the thread that started it does, so that thread must stay as long as the child is wanted.
    """
    import ctypes  # noqa: PLC0415  # only children need it

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
