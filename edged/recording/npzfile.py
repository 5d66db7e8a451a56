"""Samples → a .npz, and back. The same samples give the same bytes (no dates).

Arrays are written sample by sample: a recording may fill half of the memory, and is not copied to be written.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edged import limits, npzread
from edged.errors import BadDataError
from edged.shown import plain

Array = npt.NDArray[Any]
# Where `edged convert --eval` looks for labels, and all the names that it takes for them, the first that is there.
LABELS = "y"
LABEL_KEYS = (LABELS, "label", "labels")
SUFFIX = ".npz"
_NAME_BYTES = 65_535 - len(".npy")  # of a member, as ZIP counts them


class Facts(NamedTuple):
    """What every sample of an array has: dtype and shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def facts(sample: Mapping[str, Array]) -> dict[str, Facts]:
    """Return each array's dtype and shape."""
    return {name: Facts(array.dtype, array.shape) for name, array in sample.items()}


def name_problem(name: str) -> str:
    """Return why no array can have this name, or ""."""
    try:
        good = 0 < len(name.encode()) <= _NAME_BYTES and "\0" not in name
    except UnicodeEncodeError:
        good = False
    return "" if good else f"{name[:40]!r} cannot be the name of an array: 1 to {_NAME_BYTES} bytes of UTF-8"


def read(path: Path) -> dict[str, Array]:
    """Return the arrays of an earlier recording, each [count, …]; none when there is no file. Raises BadDataError."""
    shown = plain(str(path))
    try:
        if not path.exists():
            return {}
        if not path.is_file():  # a pipe would be waited for
            raise BadDataError(shown, "is not a regular file")
        with path.open("rb") as file:
            arrays = npzread.arrays(file, limits.available())
    except OSError as exc:
        raise BadDataError(shown, f"cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise BadDataError(shown, f"cannot be read: {plain(str(exc))}") from exc
    if not arrays or len({len(array) if array.ndim else -1 for array in arrays.values()}) > 1:
        raise BadDataError(shown, "is no recording: its arrays hold different numbers of samples")
    return arrays


def misfit(found: Mapping[str, Facts], expected: Mapping[str, Facts]) -> str:
    """Return in words why samples of `found` cannot go with those of a file that holds `expected`, or ""."""
    return "" if found == expected else f"holds {_told(expected)}, the recording {_told(found)}"


def _told(arrays: Mapping[str, Facts]) -> str:
    return ", ".join(f"{name!r} {dtype} {list(shape)}" for name, (dtype, shape) in sorted(arrays.items()))


def write(file: IO[bytes], samples: Sequence[Mapping[str, Array]], before: Mapping[str, Array]) -> None:
    """Write `samples` (at least one) after the samples of `before`.

    before: name → [count, …], of the same names and shapes. Where the dtypes differ (names of classes, longer ones) the
    one that holds both is written. Raises OSError.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, (dtype, shape) in facts(samples[0]).items():
            old = [before[name]] if name in before else []
            written = np.result_type(dtype, *(array.dtype for array in old))
            count = len(samples) + sum(map(len, old))
            # ZipInfo without a date is of 1980: no clock gets into the file.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                _write_header(member, written, (count, *shape))
                _write_data(member, written, [*old, *(sample[name] for sample in samples)])


def _write_header(member: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    # numpy has no types for its format module.
    descr = np.lib.format.dtype_to_descr(dtype)  # type: ignore[no-untyped-call]
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)  # type: ignore[no-untyped-call]


def _write_data(member: IO[bytes], dtype: np.dtype[Any], arrays: Iterable[Array]) -> None:
    for array in arrays:
        # What is there in the right dtype is not copied.
        member.write(np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data)
