"""The file to be: held from the start against a second recorder, and there whole or not at all.

While it lasts there is `.NAME.part` beside it, held by a lock that ends with the process: what a killed one leaves is
taken over by the next. Where the file cannot be written at the end, the samples go where they can.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from edged.errors import BadDataError, EdgedError, UnavailableError, UsageError
from edged.recording import npzfile
from edged.recording.keep import Sample
from edged.recording.npzfile import LABELS, SUFFIX, Array, Facts
from edged.shown import one_line, plain

_STANDARD = 3  # file descriptors below it are somebody's input, output and errors, also where they are closed
_STEM = 60  # characters of the name that a rescued file keeps: with a number it must not grow too long
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Output:
    """Made at the start, so that a place that cannot be written is known before an hour has passed.

    replace: also where the file exists. append: after the samples of the file, where there is one. A link is followed.
    before: dtype and shape of the arrays that the file holds, {} where there is none.
    Raises UsageError for a name that will not do, a file that is there, or one that another recorder writes;
    BadDataError for a file that is no recording.
    """

    def __init__(self, path: Path, *, replace: bool = False, append: bool = False) -> None:
        self.shown = plain(str(path))
        self._append, self._replace = append, replace or append
        self._target = self._checked(path)
        self._part = self._target.with_name(f".{self._target.name}.part")
        self._file = self._claimed()
        self._held = True
        with ExitStack() as undo:
            undo.callback(self._leave)
            arrays = self._arrays()
            undo.pop_all()
        self.before = {name: Facts(array.dtype, array.shape[1:]) for name, array in arrays.items()}

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def write(self, samples: Sequence[Sample]) -> int:
        """Write `samples` (at least one) and let the file appear; returns how many stood in it before.

        Raises UnavailableError or BadDataError where it cannot; it says where the samples are instead, and how many
        are lost.
        """
        try:
            before = self._arrays()
            self._check(samples, before)
            npzfile.write(self._file, samples, before)
            self._file.flush()
            os.fsync(self._file.fileno())
            elsewhere = self._appear()
        except (OSError, MemoryError, EdgedError) as exc:
            self._leave()  # the part may be what fills the disk
            raise self._rescued(samples, exc) from exc
        if elsewhere is not None:
            raise elsewhere
        return len(next(iter(before.values()), ()))

    # --- the place ----------------------------------------------------------------------------------------------------

    def _checked(self, path: Path) -> Path:
        """Return the file itself, where `path` is a link to it."""
        if path.suffix != SUFFIX:
            raise UsageError("-o", f"{self.shown} must end in {SUFFIX}")
        try:
            target, there = Path(os.path.realpath(path)), path.exists()
            if path.is_symlink() and not there:
                raise UsageError("-o", f"{self.shown} is a link to {plain(str(target))}, which does not exist")
            if there and not path.is_file():
                kind = BadDataError if self._append else UsageError
                raise kind("-o", f"{self.shown} is not a regular file")
        except OSError as exc:
            raise UsageError("-o", f"{self.shown} cannot be written: {exc.strerror}") from exc
        if there and not self._replace:
            raise UsageError("-o", f"{self.shown} exists", "--force replaces it, --append adds to it")
        return target

    def _claimed(self) -> IO[bytes]:
        """Open the part and lock it. Its last holder may rename or remove it in between: then once more."""
        try:
            while True:
                number = _opened(self._part)
                with ExitStack() as undo:
                    undo.callback(os.close, number)
                    if _locked(number, self._part):
                        os.ftruncate(number, 0)
                        undo.pop_all()
                        return os.fdopen(number, "r+b")
        except BlockingIOError as exc:
            hint = "wait for it, or give another file"
            raise UsageError("-o", f"{self.shown} is being recorded by another process", hint) from exc
        except OSError as exc:
            raise UsageError("-o", f"{self.shown} cannot be written: {exc.strerror}") from exc

    def _leave(self) -> None:
        """Remove the part, while it is still this process's, and let go of it."""
        if self._held:
            with suppress(OSError):
                self._part.unlink()
        self._held = False
        with suppress(OSError):  # what is still buffered may not fit
            self._file.close()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, Array]:
        return npzfile.read(self._target) if self._append else {}

    def _check(self, samples: Sequence[Sample], before: Mapping[str, Array]) -> None:
        """The file was checked at the start; programs that know no lock may have changed it since."""
        found = npzfile.facts(samples[0])
        now = {name: Facts(array.dtype, array.shape[1:]) for name, array in before.items()}
        if now and (now.keys() != found.keys() or any(now[n] != found[n] for n in now if n != LABELS)):
            raise BadDataError(self.shown, f"was changed meanwhile: it {npzfile.misfit(found, now)}")
        if now and LABELS in now and now[LABELS] != self.before.get(LABELS):
            raise BadDataError(self.shown, "was changed meanwhile: its labels are of another kind")

    def _appear(self) -> EdgedError | None:
        """Give the part its name, or one beside it: then returns what is to be told of it."""
        told: EdgedError | None = None
        if not self._replace:
            try:
                os.link(self._part, self._target)
            except FileExistsError:
                self._target = self._target.with_name(f"{self._target.stem[:_STEM]}.{os.getpid()}{SUFFIX}")
                told = BadDataError(self.shown, "appeared meanwhile", f"the recording is in {plain(str(self._target))}")
            except OSError:  # a file system without links (FAT)
                pass
            else:
                return None
        self._part.replace(self._target)
        self._held = False
        return told

    def _rescued(self, samples: Sequence[Sample], exc: Exception) -> EdgedError:
        """Write the samples beside the file or where temporary files go, as many as fit; returns what is to be told."""
        count = len(samples)
        while (kept := _saved(self._target, samples[:count])) is None and count > 1:
            count //= 2
        lost = len(samples) - count
        if kept is None:
            hint = f"all {len(samples)} samples are lost"
        elif lost:
            hint = f"the first {count} of {len(samples)} samples are in {plain(str(kept))}, the other {lost} are lost"
        else:
            hint = f"the recording, {count} samples, is in {plain(str(kept))}"
        if isinstance(exc, EdgedError):
            return type(exc)(exc.where, exc.what, hint)
        what = exc.strerror if isinstance(exc, OSError) and exc.strerror else one_line(exc)
        return UnavailableError(self.shown, f"cannot be written: {what}", hint)


def _opened(part: Path) -> int:
    number = os.open(part, _FLAGS, 0o666)
    if number < _STANDARD:
        low, number = number, fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _STANDARD)
        os.close(low)
    return number


def _locked(number: int, part: Path) -> bool:
    """Lock the open file; False where it is no longer the one of that name. Raises BlockingIOError: another has it."""
    if not stat.S_ISREG(os.fstat(number).st_mode):
        raise OSError(errno.EINVAL, f"{plain(part.name)} is not a regular file")
    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        return os.path.samestat(os.fstat(number), part.stat())
    except FileNotFoundError:
        return False


def _saved(target: Path, samples: Sequence[Sample]) -> Path | None:
    """Return the new file that holds the samples, beside `target` or in the directory of temporary files."""
    for folder in (target.parent, None):
        path = None
        try:
            number, name = tempfile.mkstemp(SUFFIX, f"{target.stem[:_STEM]}.", folder)
            path = Path(name)
            with os.fdopen(number, "w+b") as file:
                npzfile.write(file, samples, {})
                file.flush()
                os.fsync(file.fileno())
        except (OSError, MemoryError):
            if path is not None:
                path.unlink(missing_ok=True)
        else:
            return path
    return None
