"""Real data out of installed packages, which are found and never imported: only their files are wanted.

Every reader returns float32 arrays [samples, …] and, where there are classes, int64 numbers from 0.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Classes = npt.NDArray[np.int64]

RATE = 22050
# What basic-pitch hears at once: two seconds but one hop of 256 samples.
WINDOW = 43844
# The middle of the face in the portrait.
FACE = np.array([222.0, 112.0])


def folder(package: str, *inside: str) -> Path:
    """Return a directory or file inside an installed package, without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(package)
    return Path(next(iter(spec.submodule_search_locations)), *inside)


def recordings(name: str, part: str) -> tuple[Floats, Classes]:
    """Return aeon's recordings of equal length: x [n, time, dimensions]; part is TRAIN or TEST."""
    text = folder("aeon", "datasets", "data", name.split("_", maxsplit=1)[0], f"{name}_{part}.ts").read_text()
    rows = [line.split(":") for line in text.splitlines() if line.strip() and line[0] not in "#@%"]
    x = np.array([[dimension.split(",") for dimension in row[:-1]] for row in rows], np.float32)
    names = sorted({row[-1] for row in rows})
    return x.transpose(0, 2, 1).copy(), np.array([names.index(row[-1]) for row in rows], np.int64)


def digits() -> tuple[Floats, Classes]:
    """Return handwritten digits as images [n, 8, 8, 1] of 0 to 1."""
    with gzip.open(folder("sklearn", "datasets", "data", "digits.csv.gz"), "rt") as file:
        rows = np.loadtxt(file, delimiter=",")
    return (rows[:, :-1].reshape(-1, 8, 8, 1) / 16).astype(np.float32), rows[:, -1].astype(np.int64)


def water_flow() -> Floats:
    """Return the flow through a pipe, hour by hour, in l/s: [hours]."""
    with folder("river", "datasets", "water-flow.csv").open() as file:
        return np.array([row[1] for row in list(csv.reader(file))[1:]], np.float32)


def shuttle() -> tuple[Floats, Classes]:
    """Return nine sensors of a space shuttle [n, 9] and whether a row is an anomaly (1)."""
    with gzip.open(folder("river", "datasets", "shuttle.csv.gz"), "rt") as file:
        rows = np.loadtxt(file, delimiter=",", skiprows=1)
    return rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int64)


def photos() -> list[Any]:
    """Return two photographs without faces."""
    from PIL import Image

    where = folder("sklearn", "datasets", "images")
    return [Image.open(where / name).convert("RGB") for name in ("china.jpg", "flower.jpg")]


def crops(count: int, size: int, seed: int) -> Floats:
    """Return square pieces of the photographs at all scales, [count, size, size, 3] of 0 to 255."""
    generator, pictures = np.random.default_rng(seed), photos()
    pieces = []
    for _ in range(count):
        picture = pictures[generator.integers(len(pictures))]
        side = int(np.exp(generator.uniform(np.log(12), np.log(min(picture.size)))))
        left, top = (int(generator.integers(length - side + 1)) for length in picture.size)
        pieces.append(_piece_of(picture, (left, top, left + side, top + side), size))
    return np.stack(pieces)


def faces(count: int, size: int, seed: int) -> Floats:
    """Return pieces of a portrait about its face, some mirrored, lighter or darker, as `crops` does."""
    from PIL import Image

    portrait = Image.open(folder("skimage", "data", "astronaut.png")).convert("RGB")
    generator, pieces = np.random.default_rng(seed), []
    for i in range(count):
        half, (x, y) = generator.uniform(50, 75), FACE + generator.uniform(-8, 8, 2)
        piece = _piece_of(portrait, (x - half, y - half, x + half, y + half), size)
        pieces.append((piece[:, :: -1 if i % 2 else 1] * generator.uniform(0.7, 1.1)).clip(0, 255))
    return np.array(pieces, np.float32)


def _piece_of(picture: Any, box: tuple[float, float, float, float], size: int) -> Floats:
    piece: Floats = np.asarray(picture.resize((size, size), 2, box), np.float32)  # 2: bilinear
    return piece


def windows(series: Floats, length: int) -> tuple[Floats, Floats]:
    """Return every window [n, length, 1] of a series and the value that follows it [n, 1]."""
    view = np.lib.stride_tricks.sliding_window_view(series, length + 1)
    return view[:, :-1, np.newaxis].copy(), view[:, -1:].copy()


def music(count: int, seed: int) -> Floats:
    """Return windows of synthetic music, [count, WINDOW, 1]: chords, each note with harmonics; noise; some silence."""
    generator = np.random.default_rng(seed)
    return np.stack([_piece(generator, quiet=i % 12 == 11) for i in range(count)])[..., np.newaxis].astype(np.float32)


def _piece(generator: np.random.Generator, *, quiet: bool) -> npt.NDArray[np.float64]:
    # A room's noise, 40 to 60 dB below full scale: without it the model listens to rounding between the notes.
    sound = generator.normal(0, 10 ** generator.uniform(-3, -2), WINDOW)
    if not quiet:
        for begin, note, loudness in _score(generator):
            played = loudness * _note(generator, note)[: WINDOW - begin]
            sound[begin : begin + len(played)] += played
    peak = np.abs(sound).max()
    return sound * (generator.uniform(0.3, 0.95) / peak) if peak > 1 else sound


def _score(generator: np.random.Generator) -> Iterator[tuple[int, int, float]]:
    """Yield (first sample, MIDI note, loudness) of three to seven beats with one to four notes each."""
    for beat in range(int(generator.integers(3, 8))):
        begin = int(WINDOW * (beat / 8 + generator.uniform(0, 0.1)))
        for note in generator.integers(36, 90, size=int(generator.integers(1, 5))):
            yield begin, int(note), float(generator.uniform(0.05, 0.4))


def _note(generator: np.random.Generator, note: int) -> Any:
    """Return one struck note, [samples]: harmonics that fade the faster the higher they are."""
    seconds = np.arange(int(RATE * generator.uniform(0.2, 1.2))) / RATE
    pitch, fade = 440 * 2 ** ((note - 69) / 12), generator.uniform(1, 4)
    tones = [
        np.sin(2 * np.pi * pitch * k * seconds + generator.uniform(0, 6)) * np.exp(-fade * k**0.7 * seconds) / k**1.2
        for k in range(1, 9)
        if pitch * k < RATE / 2
    ]
    return np.sum(tones, axis=0) * np.minimum(1, seconds / 0.005)
