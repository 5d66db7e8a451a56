"""What LiteRT's CompiledModel says on standard error, where its exceptions and its answers say nothing.

`is_fully_accelerated` is also true where XNNPACK took what the accelerator left, and even where it took everything; it
is also false where the accelerator took nothing. So how much an accelerator took is believed only where it is said
here, in numbers. Texts of ai-edge-litert 2.2 and 2.3; where a later one says it in other words, nothing is believed.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_STDERR = 2
_GPU = re.compile(r"(\d+) operations will run on the GPU, and the remaining (\d+) operations will run on the CPU")
_NPU = re.compile(r"selected (\d+) ops, from a total of (\d+) ops")
_NPU_COMPILED = re.compile(r"[1-9]\d* compiler plugins were applied successfully")
_LEVEL = re.compile(r"^(?:ERROR: |Warning: |WARNING: |└ |[EF]\d{4} [\d:. ]+)?(?:[\w.]+\.cc:\d+\] |\[[\w./]+:\d+\] )?")
_PASSING = re.compile(
    r"^(?:INFO|VERBOSE|DEBUG|WARNING: (?!Attempting to use a delegate)|[IW]\d{4} |=== |third_party/|\s+at )"
    r"|Logging before"
)
# Lines that tell the cause rather than what followed from it.
_CAUSE = re.compile(r"not supported|only supports|[Cc]annot|[Cc]ould ?n[o']t|no drivers|No adapters|NotFound")
_FOLDERS = re.compile(r"/[\w.+@/-]+/")  # of a path: the file's name says enough
_HEADING = "Following operations are not supported by"
_ADVICE = re.compile(r" Add kLiteRtHwAcceleratorCpu .*")
MOST = 300  # characters


@dataclass
class Heard:
    """What was written on standard error while it was listened to; complete afterwards."""

    text: str = ""

    def share(self) -> tuple[int, int] | None:
        """Return how many ops the accelerator took, of how many; None where nothing is said of it."""
        if gpu := _GPU.findall(self.text):
            taken, rest = (sum(map(int, counts)) for counts in zip(*gpu, strict=True))
            return taken, taken + rest
        if (npu := _NPU.findall(self.text)) and _NPU_COMPILED.search(self.text):
            taken, total = (sum(map(int, counts)) for counts in zip(*npu, strict=True))
            return taken, total
        return None

    def reason(self, error: BaseException | None = None) -> str:
        """Return the line that tells most of why it failed, without its decoration; else what the exception says."""
        lines = [_LEVEL.sub("", line).strip() for line in self.text.splitlines() if not _PASSING.search(line)]
        lines = [line for line in lines if line and not line.startswith(_HEADING)]
        found = next((line for line in lines if _CAUSE.search(line)), lines[0] if lines else "")
        return _FOLDERS.sub("", found or _last_line(error))[:MOST]


def _last_line(error: BaseException | None) -> str:
    lines = str(error or "").splitlines() or [type(error).__name__]
    return _ADVICE.sub("", lines[-1].lstrip("└ "))


@contextmanager
def listening() -> Iterator[Heard]:
    """Hear what this process writes on standard error, Python and native code alike; all of it still gets there.

    Where standard error is a file that can be read, as an isolated engine's is, it is read there, and the words of what
    kills the process are kept. Elsewhere they are held back till the end, other threads' words too.
    """
    heard = Heard()
    if _readable():
        start = os.lseek(_STDERR, 0, os.SEEK_CUR)
        try:
            yield heard
        finally:
            heard.text = _since(_STDERR, start)
        return
    kept, held = os.dup(_STDERR), os.memfd_create("stderr")
    try:
        os.dup2(held, _STDERR)
        try:
            yield heard
        finally:
            os.dup2(kept, _STDERR)
            heard.text = _since(held, 0)
            with suppress(OSError), open(kept, "wb", closefd=False) as stderr:  # whoever read it may be gone
                stderr.write(heard.text.encode(errors="surrogateescape"))
    finally:
        os.close(held)
        os.close(kept)


def _readable() -> bool:
    mode = fcntl.fcntl(_STDERR, fcntl.F_GETFL) & os.O_ACCMODE
    return mode == os.O_RDWR and stat.S_ISREG(os.fstat(_STDERR).st_mode)


def _since(file: int, start: int) -> str:
    end = os.lseek(file, 0, os.SEEK_CUR)
    start = start if start <= end else 0  # it may have been begun anew meanwhile
    return os.pread(file, end - start, start).decode(errors="surrogateescape")
