"""Where samples come from: .npz, .npy, a directory of images, or a function. Also how they are shared out.

A function runs in the child process, with the caller's working directory in front of `sys.path`.
"""

from __future__ import annotations

import itertools
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from converters import plain
from converters.samples import Array, InputInfo, Samples, bind
from edged.bundle import ImagePreprocess, InputRange
from edged.errors import BadDataError, UnavailableError, UsageError

LABEL_KEYS = ("y", "labels")
IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp"})
# Below this, ranges of activations are a guess; the TFLite guide asks for "100-500 samples".
FEW = 100
# What a function may yield: more calibrates no better, and an endless generator must end.
MOST = 1000
# Every fifth calibration sample is held out where there is no evaluation data.
HOLD_OUT = 5
MOST_HELD_OUT = 200
RANDOM = "random"
RANDOM_SAMPLES = 32


def load(
    source: str, inputs: tuple[InputInfo, ...], *, cwd: Path, image: ImagePreprocess | None, labels: bool = False
) -> Samples:
    """Load and check samples from a path or `module:function`. `labels`: a key `y` or `labels` may stand beside them.

    Raises BadDataError, UsageError, or UnavailableError where a package to read images is missing.
    """
    path = cwd / source
    if path.is_dir():
        return _from_images(path, inputs, image)
    if path.suffix == ".npz" and path.is_file():
        return _from_npz(path, inputs, labels=labels)
    if path.suffix == ".npy" and path.is_file():
        return bind({_only(inputs, source).name: _read(path)}, inputs, path.name)
    if ":" in source and not path.exists():
        return _from_function(source, inputs, cwd)
    if not path.exists():
        raise BadDataError(source, "no such file or directory")
    raise UsageError(source, "cannot be read as samples", "give .npz, .npy, a directory of images or module:function")


def _only(inputs: tuple[InputInfo, ...], source: str) -> InputInfo:
    if len(inputs) == 1:
        return inputs[0]
    names = ", ".join(info.name for info in inputs)
    raise BadDataError(source, f"one array for {len(inputs)} inputs", f"give a .npz with the arrays {names}")


def _read(path: Path) -> Any:
    """Return the array of a .npy, or name → array of a .npz. Raises BadDataError; never loads Python objects."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            return {key: found[key] for key in found.files} if path.suffix == ".npz" else found
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as exc:
        raise BadDataError(str(path), f"cannot be read: {exc}") from exc


def _from_npz(path: Path, inputs: tuple[InputInfo, ...], *, labels: bool) -> Samples:
    names = {info.name for info in inputs}
    arrays = _read(path)
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


def _from_function(source: str, inputs: tuple[InputInfo, ...], cwd: Path) -> Samples:
    module, _, name = source.partition(":")
    os.chdir(cwd)
    sys.path.insert(0, str(cwd))
    try:
        function = getattr(import_module(module), name)
    except ImportError as exc:
        raise BadDataError(source, f"cannot be imported: {exc}", f"looked in {cwd} and the installed packages") from exc
    except AttributeError as exc:
        raise BadDataError(source, f"module {module!r} has no {name!r}") from exc
    rows = list(itertools.islice(_rows(function(), inputs, source), MOST + 1))
    if not rows:
        raise BadDataError(source, "yields no sample")
    samples = bind(_stacked(rows[:MOST], inputs, source), inputs, source)
    if len(rows) <= MOST:
        return samples
    return Samples(source, samples.arrays, None, (*samples.notes, f"{source}: only the first {MOST} samples are used"))


def _rows(yielded: Iterable[object], inputs: tuple[InputInfo, ...], source: str) -> Iterator[Mapping[str, Array]]:
    for value in yielded:
        row = value if isinstance(value, Mapping) else {_only(inputs, source).name: value}
        yield {str(name): np.asarray(array) for name, array in row.items()}


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


def _from_images(folder: Path, inputs: tuple[InputInfo, ...], image: ImagePreprocess | None) -> Samples:
    if image is None:
        raise UsageError(folder.name, "a directory of images needs --preprocess", "how pixels become the input")
    info = next(info for info in inputs if info.name == image.input)
    if len(inputs) > 1:
        _only(inputs, folder.name)
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGES)
    if not paths:
        raise BadDataError(str(folder), f"no image in it ({', '.join(sorted(IMAGES))})")
    arrays = np.stack([_image(path, image, info) for path in paths])
    return bind({info.name: arrays}, inputs, folder.name)


def _image(path: Path, image: ImagePreprocess, info: InputInfo) -> Array:
    try:
        from PIL import Image  # noqa: PLC0415  # an extra

        from edged.preprocess import write_image  # noqa: PLC0415  # needs the same extra
    except ImportError as exc:
        raise UnavailableError("images", "Pillow is not installed", "pip install 'edged[image]'") from exc
    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, Image.DecompressionBombError) as exc:
        raise BadDataError(str(path), f"cannot be read as an image: {exc}") from exc
    whole = np.empty((1, *info.shape[1:]), info.dtype)
    write_image(pixels, image, whole)
    one: Array = whole[0]
    return one


def ranges(samples: Samples) -> tuple[InputRange, ...]:
    """Return what calibration saw of each input."""
    return tuple(InputRange(name, float(a.min()), float(a.max())) for name, a in sorted(samples.arrays.items()))


def hold_out(samples: Samples) -> tuple[Samples, Samples]:
    """Split into (calibration, held out): every fifth is held out; too few for that serve both."""
    index = np.arange(samples.count)
    held = index[HOLD_OUT - 1 :: HOLD_OUT][:MOST_HELD_OUT]
    if held.size <= 1:
        return samples, samples
    return samples.take(np.setdiff1d(index, held)), samples.take(held)


def random_samples(inputs: tuple[InputInfo, ...]) -> Samples:
    """Make seeded samples where none were given: normal floats, pixels, whole numbers 0 and 1 (any table has them)."""
    generator = np.random.default_rng(0)
    arrays = {}
    for info in inputs:
        shape, dtype = (RANDOM_SAMPLES, *info.shape), np.dtype(info.dtype)
        if info.is_float:
            arrays[info.name] = generator.standard_normal(shape, dtype=np.float64).astype(dtype)
        else:
            high = 256 if dtype == np.uint8 else 2
            arrays[info.name] = generator.integers(0, high, shape).astype(dtype)
    return Samples(RANDOM, arrays)


def complete_image(raw: Mapping[str, Any], inputs: tuple[InputInfo, ...], source: str) -> ImagePreprocess:
    """Build ImagePreprocess, with `input`, `width` and `height` from the model where they are left out.

    Raises BadDataError when they contradict the model's input, or a key is wrong.
    """
    pictures = [info for info in inputs if len(info.shape) == 4]  # noqa: PLR2004  # batch, two sides, channels
    name = raw.get("input", pictures[0].name if len(pictures) == 1 else "")
    info = next((info for info in pictures if info.name == name), None)
    if info is None:
        listed = ", ".join(f"{i.name} {list(i.shape)}" for i in inputs)
        raise BadDataError(source, f"input: {name!r} is no image input of the model", f"inputs: {listed}")
    nchw = raw.get("layout") == "NCHW"
    height, width = info.shape[2:] if nchw else info.shape[1:3]
    built = plain.build(ImagePreprocess, {"input": name, "width": width, "height": height, **raw}, source)
    channels = info.shape[1] if nchw else info.shape[3]
    wanted = (height, width, channels)
    if (built.height, built.width, 1 if built.channels == "GRAY" else 3) != wanted:
        raise BadDataError(source, f"does not fit input {name!r} of shape {list(info.shape)}", f"layout {built.layout}")
    return built
