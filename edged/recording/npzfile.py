"""Samples → a .npz that appears whole or not at all. The same samples give the same bytes (no dates).

Arrays are written sample by sample: a recording may fill half of the memory, and is not copied to be written.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edged.errors import BadDataError, UsageError

Array = npt.NDArray[Any]
# Where `edged convert --eval` looks for labels.
LABELS = "y"
SUFFIX = ".npz"


class Facts(NamedTuple):
    """What every sample of an array has: dtype and shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def facts(sample: Mapping[str, Array]) -> dict[str, Facts]:
    """Return each array's dtype and shape."""
    return {name: Facts(array.dtype, array.shape) for name, array in sample.items()}


def read(path: Path) -> dict[str, Array]:
    """Return the arrays of an earlier recording, each [count, …]; none when there is no file. Raises BadDataError."""
    if not path.exists():
        return {}
    try:
        # np.load leaves a file open that it opened itself and cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {str(name): found[name] for name in found.files}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as exc:
        raise BadDataError(str(path), f"cannot be read: {exc}") from exc
    if not arrays or len({len(array) if array.ndim else -1 for array in arrays.values()}) > 1:
        raise BadDataError(str(path), "is no recording: its arrays hold different numbers of samples")
    return arrays


class Output:
    """The file to be. Made at the start, so that a place that cannot be written is known before an hour has passed.

    replace: also where the file exists. Raises UsageError for a name that will not do, or a file that is there.
    """

    def __init__(self, path: Path, *, replace: bool) -> None:
        if path.suffix != SUFFIX:
            raise UsageError("-o", f"{path} must end in {SUFFIX}")
        if path.exists() and not replace:
            raise UsageError("-o", f"{path} exists", "--force replaces it, --append adds to it")
        self._path, self._replace = path, replace
        self._part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            self._file = self._part.open("xb")
        except OSError as exc:
            raise UsageError("-o", f"{path} cannot be written: {exc.strerror}") from exc

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)

    def write(self, samples: Sequence[Mapping[str, Array]], before: Mapping[str, Array]) -> None:
        """Write `samples` (at least one) after the samples of `before`, and let the file appear.

        before: name → [count, …], of the same names and shapes, in dtypes that those of `samples` can hold.
        """
        with zipfile.ZipFile(self._file, "w") as archive:
            for name, (dtype, shape) in facts(samples[0]).items():
                old = [before[name].astype(dtype, copy=False)] if name in before else []
                count = len(samples) + sum(map(len, old))
                # ZipInfo without a date is of 1980: no clock gets into the file.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    _write_header(member, dtype, (count, *shape))
                    _write_data(member, [*old, *(sample[name] for sample in samples)])
        self._file.flush()
        os.fsync(self._file.fileno())
        self._appear()

    def _appear(self) -> None:
        if self._replace:
            self._part.replace(self._path)
            return
        try:
            os.link(self._part, self._path)  # unlike a rename it never replaces a file
        except FileExistsError as exc:
            kept = self._path.with_name(f"{self._path.stem}.{os.getpid()}{SUFFIX}")
            self._part.replace(kept)
            raise BadDataError(str(self._path), "appeared meanwhile", f"the recording is in {kept}") from exc
        except OSError:  # a file system without links (FAT)
            self._part.replace(self._path)


def _write_header(member: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    # numpy has no types for its format module.
    descr = np.lib.format.dtype_to_descr(dtype)  # type: ignore[no-untyped-call]
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)  # type: ignore[no-untyped-call]


def _write_data(member: IO[bytes], arrays: Iterable[Array]) -> None:
    for array in arrays:
        member.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
