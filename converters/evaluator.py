"""A child process that runs one candidate file after another on the same samples, without TensorFlow.

A search tries dozens of files; starting an interpreter for each would cost more than running them. A file that kills
the runtime costs one restart, and is told as an error of that file alone.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from subprocess import Popen
from typing import IO, Any

from converters import child
from converters.loadtest import Arrays, Runner, load, save
from converters.samples import Array
from edged import childprocess
from edged.engines import tflite_runtime
from edged.errors import EdgedError, UnavailableError

_MODULE = "converters.evaluator"
# Requests and answers are JSON objects, one a line, over a pair of sockets; files and arrays lie in the folder.
_CANDIDATE, _ANSWERS, _LOG = "candidate.tflite", "answers.npz", "log"


class Evaluator:
    """One runtime, as a device runs it: with its default delegate. The child is started by the first `run`.

    inputs: the samples, as `loadtest.save` wrote them. folder: for files on the way. limit_s: of one file's run.
    """

    def __init__(self, runtime: str, inputs: Path, folder: Path, limit_s: float) -> None:
        self.runtime = runtime
        self._inputs, self._folder, self._limit_s = inputs, folder, limit_s
        self._process: Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lines: IO[str] | None = None

    def __enter__(self) -> Evaluator:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, model: bytes, signature: str) -> Arrays:
        """Return output name → [count, *shape] in the model's dtypes; each run begins with the model's first state.

        Raises UnavailableError for a file that does not load, does not run, kills the child or takes too long.
        """
        (self._folder / _CANDIDATE).write_bytes(model)
        answer = self._ask({"signature": signature})
        if "error" in answer:
            raise child.error(answer["error"])
        return load(self._folder / _ANSWERS)

    def close(self) -> None:
        """End the child; a later `run` starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for end in (self._lines, self._socket):
            if end is not None:
                end.close()
        self._process = self._socket = self._lines = None

    def _ask(self, request: Mapping[str, str]) -> dict[str, Any]:
        if self._socket is None or self._lines is None:
            self._socket, self._lines = self._start()
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._lines.readline()
        except TimeoutError as exc:
            self.close()
            raise UnavailableError("model", f"was not done after {self._limit_s:.0f} s") from exc
        except OSError:  # the child is gone: a broken pipe says no more than the end of the file
            line = ""
        if not line:
            raise UnavailableError("model", self._death())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> tuple[socket.socket, IO[str]]:
        ours, theirs = socket.socketpair()
        ours.settimeout(self._limit_s)
        args = (str(self._folder), str(theirs.fileno()), self.runtime, str(self._inputs))
        with theirs, (self._folder / _LOG).open("wb") as log:
            self._process = childprocess.start(_MODULE, *args, stdout=log, stderr=log, pass_fds=[theirs.fileno()])
        return ours, ours.makefile()

    def _death(self) -> str:
        """Say how the child ended, and leave room for the next."""
        code = 0 if self._process is None else self._process.wait()
        self.close()
        return childprocess.ended(code, childprocess.last_line(child.log_tail(self._folder)), "running it")


def _serve(folder: Path, lines: IO[str], runtime: tflite_runtime.Runtime, samples: Mapping[str, Array]) -> None:
    """Be the child: run the candidate for every line that comes, until the other end is closed."""
    module = runtime.module()
    for line in lines:
        try:
            model, signature = (folder / _CANDIDATE).read_bytes(), json.loads(line)["signature"]
            save(folder / _ANSWERS, Runner(module, model, signature, module.OpResolverType.AUTO).run(samples))
            answer: dict[str, Any] = {}
        except EdgedError as exc:
            answer = {"error": child.plain_error(exc)}
        lines.write(json.dumps(answer) + "\n")
        lines.flush()


def main() -> None:
    """Read the arguments that `Evaluator` gave, and serve."""
    childprocess.die_with_parent()
    folder, descriptor, runtime, inputs = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as end, end.makefile("rw") as lines:
        _serve(Path(folder), lines, tflite_runtime.by_name(runtime), load(Path(inputs)))


if __name__ == "__main__":
    main()
