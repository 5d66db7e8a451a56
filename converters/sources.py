"""Where samples come from: .npz, .npy, .csv, a directory of images, or a function.

A function runs in the child process; see userfunction.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from converters import csvsource, imagesource, userfunction, variation
from converters.samples import Array, InputInfo, Samples, bind
from edged import limits, npyformat, npzread
from edged.bundle import ImagePreprocess
from edged.errors import BadDataError, UsageError
from edged.recording.npzfile import LABEL_KEYS

# What a function may yield: more calibrates no better, and an endless generator must end.
MOST = 1000
_KINDS = "give .npz, .npy, .csv, a directory of images or module:function"


def load(
    source: str, inputs: tuple[InputInfo, ...], *, cwd: Path, image: ImagePreprocess | None, labels: bool = False
) -> Samples:
    """Load and check samples from a path or `module:function`; what is suspicious of them is in their notes.

    labels: keys or columns of `LABEL_KEYS` beside the inputs are the labels; without, they are not used.
    Raises BadDataError, UsageError, or UnavailableError where a package to read images is missing.
    """
    samples = _read_source(source, inputs, cwd, image, labels=labels)
    return replace(samples, notes=(*samples.notes, *variation.notes(samples)))


def _read_source(
    source: str, inputs: tuple[InputInfo, ...], cwd: Path, image: ImagePreprocess | None, *, labels: bool
) -> Samples:
    path = cwd / source
    if path.is_dir():
        return imagesource.load(path, inputs, image)
    if path.is_file():
        return _from_file(path, inputs, labels=labels)
    if ":" in source and not path.exists():
        return _from_function(source, inputs, cwd, labels=labels)
    if not path.exists():
        raise BadDataError(source, "no such file or directory")
    raise UsageError(source, "cannot be read as samples", _KINDS)


def _from_file(path: Path, inputs: tuple[InputInfo, ...], *, labels: bool) -> Samples:
    if path.suffix == ".npz":
        return _from_npz(path, inputs, labels=labels)
    if path.suffix == ".npy":
        return bind({_only(inputs, path.name).name: _npy(path)}, inputs, path.name)
    if csvsource.is_csv(path):
        return csvsource.load(path, inputs, labels=labels)
    raise UsageError(path.name, "cannot be read as samples", _KINDS)


def _only(inputs: tuple[InputInfo, ...], source: str) -> InputInfo:
    if len(inputs) == 1:
        return inputs[0]
    names = ", ".join(info.name for info in inputs)
    raise BadDataError(source, f"one array for {len(inputs)} inputs", f"give a .npz with the arrays {names}")


def _npy(path: Path) -> Array:
    with _blamed(path):
        array, rest = npyformat.read_array(memoryview(path.read_bytes()), text=True)
        if len(rest):
            raise ValueError(f"{len(rest)} bytes too many after the array")
    return array


def _npz(path: Path) -> dict[str, Array]:
    with _blamed(path), path.open("rb") as file:
        return npzread.arrays(file, limits.available())


@contextmanager
def _blamed(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as exc:
        raise BadDataError(str(path), f"cannot be read: {getattr(exc, 'strerror', None) or exc}") from exc


def _from_npz(path: Path, inputs: tuple[InputInfo, ...], *, labels: bool) -> Samples:
    names = {info.name for info in inputs}
    arrays = _npz(path)
    found = {key: arrays.pop(key) for key in LABEL_KEYS if labels and key in arrays and key not in names}
    notes = [f"{path.name}: {key!r} is not used" for key in list(found)[1:]]
    if len(inputs) == 1:
        arrays = _for_one_input(arrays, inputs[0].name, path.name, notes)
    samples = bind(arrays, inputs, path.name, next(iter(found.values()), None))
    return replace(samples, notes=(*notes, *samples.notes))


def _for_one_input(arrays: dict[str, Array], name: str, source: str, notes: list[str]) -> dict[str, Array]:
    """Take the only array for the only input, whatever its key; labels beside it are not wanted. Note both."""
    beside = [key for key in arrays if key in LABEL_KEYS and key != name]
    key, *more = [key for key in arrays if key not in beside] or [name]
    if more or key not in arrays:
        return arrays
    notes += [f"{source}: {other!r} is not used" for other in beside]
    if key != name:
        notes.append(f"{source}: {key!r} is taken for the only input, {name!r}")
    return {name: arrays[key]}


def _from_function(source: str, inputs: tuple[InputInfo, ...], cwd: Path, *, labels: bool) -> Samples:
    with userfunction.blamed(source, cwd):
        yielded = itertools.islice(userfunction.samples(source, cwd), MOST + 1)
        rows = [_row(i, value, inputs, source) for i, value in enumerate(yielded)]
    if not rows:
        raise BadDataError(source, "yields no sample")
    arrays, names = _stacked(rows[:MOST], inputs, source), {info.name for info in inputs}
    beside = {key: arrays.pop(key) for key in LABEL_KEYS if key in arrays and key not in names}
    notes = [f"{source}: {key!r} is not used" for key in list(beside)[labels:]]
    samples = bind(arrays, inputs, source, next(iter(beside.values()), None) if labels else None)
    if len(rows) > MOST:
        notes.append(f"{source}: only the first {MOST} samples are used")
    return replace(samples, notes=(*samples.notes, *notes))


def _row(number: int, value: object, inputs: tuple[InputInfo, ...], source: str) -> Mapping[str, Array]:
    row = value if isinstance(value, Mapping) else {_only(inputs, source).name: value}
    try:
        return {str(name): np.asarray(array) for name, array in row.items()}
    except (ValueError, TypeError) as exc:
        raise BadDataError(source, f"sample {number} is no array: {exc}") from exc


def _stacked(rows: list[Mapping[str, Array]], inputs: tuple[InputInfo, ...], source: str) -> dict[str, Array]:
    shapes = {info.name: info.shape for info in inputs}
    stacked = {}
    for name in rows[0]:
        arrays = []
        for i, row in enumerate(rows):
            if set(row) != set(rows[0]) or row[name].shape != rows[0][name].shape:
                raise BadDataError(source, f"sample {i} has other names or shapes than sample 0")
            arrays.append(row[name])
        # One yielded sample is whole: with its batch, or without where the batch is 1.
        shape = shapes.get(name, ())
        one = shape[:1] == (1,) and arrays[0].shape == shape[1:]
        stacked[name] = np.stack([array[np.newaxis] for array in arrays] if one else arrays)
    return stacked
