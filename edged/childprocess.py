"""Child processes of ours: how `python -m MODULE` is started, and how its end is told.

Native code can kill the process it runs in, and TensorFlow takes seconds and gigabytes: both live in children. A child
runs the interpreter and the packages of its parent, and nothing that lies in the user's working directory can stand in
for a module of it: `-m` looks in the working directory first, so that is one which holds no modules, and the import
path is absolute.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from subprocess import Popen

# The root directory: nobody keeps Python files there, and only root could.
NO_MODULES = Path("/")
_ROOT = Path(__file__).resolve().parent.parent
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_TICK_S = 0.05
# Of what a child writes, the end is kept: of standard output its answer, of standard error its last words.
_ANSWER, _SAID = 1 << 24, 1 << 14
_CHUNK = 1 << 16
# When it has ended: a pipe holds a MiB at most (pipe(7)), and something that it left behind may go on writing.
_LAST_CHUNKS = (1 << 20) // _CHUNK
# The variable that tells a child whose child it is.
_PARENT = "EDGED_PARENT"
# Signals that somebody sends; the others are a process's own doing.
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
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


class Patience:
    """The guard that looks at the time alone."""

    def __init__(self, seconds: float) -> None:
        self.broken = f"was not done after {seconds:.0f} s"
        self._end_s = time.monotonic() + seconds

    def tick(self) -> bool:
        """Return whether it is over."""
        return time.monotonic() > self._end_s


class _Pipes:
    """Reads what a child writes, so that it never waits for us, and keeps the end of it."""

    def __init__(self, child: Popen[bytes]) -> None:
        self.out, self.err = bytearray(), bytearray()
        self._kept: dict[int, tuple[bytearray, int]] = {}
        self._poll = select.poll()
        self._files: list[IO[bytes]] = []
        for pipe, kept, most in ((child.stdout, self.out, _ANSWER), (child.stderr, self.err, _SAID)):
            if pipe is not None:
                self._files.append(pipe)
                self._kept[pipe.fileno()] = (kept, most)
                self._poll.register(pipe, select.POLLIN)

    @property
    def open(self) -> bool:
        """Whether anything holds the other end of one."""
        return bool(self._kept)

    def take(self, within_s: float) -> None:
        """Take what comes within some seconds; less where nothing can come any more."""
        end_s = time.monotonic() + within_s
        while self._kept and (left_s := end_s - time.monotonic()) > 0:
            self._some(left_s)

    def rest(self) -> None:
        """Take what is there."""
        for _ in range(_LAST_CHUNKS):
            if not (self._kept and self._some(0)):
                return

    def close(self) -> None:
        """Let go of the pipes; what was kept stays."""
        for pipe in self._files:
            pipe.close()

    def _some(self, within_s: float) -> bool:
        ready = self._poll.poll(within_s * 1000)
        for pipe, _ in ready:
            data, (kept, most) = os.read(pipe, _CHUNK), self._kept[pipe]
            kept += data
            del kept[:-most]
            if not data:
                self._poll.unregister(pipe)
                del self._kept[pipe]
        return bool(ready)


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
    module: str, *args: str, cwd: Path = NO_MODULES, env: Mapping[str, str] | None = None, given: str = "", **more: Any
) -> Popen[bytes]:
    """Start `python -m module args…`; `more` goes to Popen as it is.

    cwd: a directory without modules. env: the whole environment, where `environment()` is not enough. given: what it
    reads from standard input, of any length, which arguments are not.
    """
    import subprocess  # noqa: PLC0415  # a daemon that knows its bundles starts no child

    environ = {**(environment() if env is None else env), _PARENT: str(os.getpid())}
    stdin = _in_memory(given.encode()) if given else os.open(os.devnull, os.O_RDONLY)
    try:
        return subprocess.Popen(command(module, *args), cwd=cwd, env=environ, stdin=stdin, **more)
    finally:
        os.close(stdin)


def _in_memory(data: bytes) -> int:
    """Return the descriptor of a file that holds `data`: nobody waits in writing it, as with a pipe."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("edged-given", os.MFD_CLOEXEC)
    else:  # a C library older than the call
        import tempfile  # noqa: PLC0415  # as subprocess

        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    with open(fd, "wb", closefd=False) as stream:
        stream.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def start_answering(module: str, *args: str, **more: Any) -> Popen[bytes]:
    """Start a child whose last line on standard output will be a JSON object: see `answer`; more: as in `start`.

    It leads a session of its own: what it starts ends with it, and what ends us at a terminal is not the child's.
    """
    from subprocess import PIPE  # noqa: PLC0415  # as above

    return start(module, *args, stdout=PIPE, stderr=PIPE, start_new_session=True, **more)


def answer(child: Popen[bytes], timeout_s: float) -> dict[str, Any]:
    """Wait for a child of `start_answering` and return its answer; it has ended afterwards, whatever happens.

    Raises NoAnswerError when it is killed, ends with another status than 0 or without an answer, or is late.
    """
    return guarded_answer(child, Patience(timeout_s))


def guarded_answer(child: Popen[bytes], guard: Guard, while_: str = "") -> dict[str, Any]:
    """`answer`, with someone who looks after the child meanwhile; NoAnswerError also when it breaks a limit.

    while_: what the child does, for the words of its end.
    """
    pipes = _Pipes(child)
    try:
        _wait(child, pipes, guard)
    finally:
        _end(child)
        pipes.rest()
        pipes.close()
    return _answered(child, pipes, while_)


def _wait(child: Popen[bytes], pipes: _Pipes, guard: Guard) -> None:
    from subprocess import TimeoutExpired  # noqa: PLC0415  # as above

    while child.poll() is None:
        pipes.take(_TICK_S)
        if not pipes.open:
            with suppress(TimeoutExpired):
                child.wait(_TICK_S)
        if child.poll() is None and guard.tick():
            raise NoAnswerError(guard.broken, None)


def _end(child: Popen[bytes]) -> None:
    """End it, and what it started: its group, and while it lives the groups that children of its own lead."""
    below = [] if child.poll() is not None else list(_children(child.pid))
    for group in (child.pid, *below):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    child.kill()
    child.wait()


def _children(pid: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The command's name may hold blanks and brackets; the fields after it do not.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    yield int(entry.name)


def _answered(child: Popen[bytes], pipes: _Pipes, while_: str) -> dict[str, Any]:
    said = last_line(pipes.err.decode(errors="replace"))
    if child.returncode != 0:
        raise NoAnswerError(ended(child.returncode, said, while_), child.returncode, said)
    try:
        value = json.loads(pipes.out.splitlines()[-1])
    except (IndexError, ValueError, RecursionError):  # something in it has called exit(0)
        value = None
    if not isinstance(value, dict):
        doing = f" while {while_}" if while_ else ""
        raise NoAnswerError(f"ended without an answer{doing}" + (f": {said}" if said else ""), 0, said)
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


def own_doing(code: int | None) -> bool:
    """Whether a child ended by its own doing; code: as of `ended`, None for one that was ended by us."""
    return code is not None and -code not in _FROM_OUTSIDE


def crashed(code: int | None) -> bool:
    """Whether a signal ended a child that nobody had sent it."""
    return code is not None and code < 0 and own_doing(code)


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
    # It may have been killed before that call. Not for children of this one's own: it is no parent of theirs.
    parent = os.environ.pop(_PARENT, "")
    if parent and parent != str(os.getppid()):
        os.kill(os.getpid(), signal.SIGKILL)
