"""BasicMotions: real smartwatch recordings (accelerometer and gyroscope at 10 Hz) of four activities.

The files come inside the `aeon` package, which is found but never imported: only its data is wanted. Format `.ts`:
header lines begin with `#` or `@`; each other line is one recording, its dimensions separated by `:`, the values of a
dimension by `,`, and the class name after the last `:`
(https://www.aeon-toolkit.org/en/stable/api_reference/file_specifications/ts.html).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edged.errors import BadDataError, UnavailableError

DATASET = "BasicMotions"
# What the six columns are, as the sensor names them in its messages.
FIELDS = ("ax", "ay", "az", "gx", "gy", "gz")
REAL_HZ = 10
INSTALL_DATA = "pip install --no-deps aeon==1.6.0"


@dataclass(frozen=True)
class Recordings:
    """x: float32 (recordings, samples, 6). y: int64 (recordings,), an index into `labels`."""

    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    labels: tuple[str, ...]


def data_directory() -> Path:
    """Return the directory of the recordings; raises UnavailableError when the package with the data is missing."""
    spec = importlib.util.find_spec("aeon")
    for root in (spec.submodule_search_locations if spec else None) or ():
        directory = Path(root) / "datasets" / "data" / DATASET
        if directory.is_dir():
            return directory
    raise UnavailableError("edged demo", f"the {DATASET} recordings are not installed", INSTALL_DATA)


def load(part: str, directory: Path | None = None) -> Recordings:
    """Read one part, "TRAIN" or "TEST" (40 recordings of 100 samples each).

    Raises UnavailableError when the data is not installed, BadDataError when the file is not as expected.
    """
    path = (directory or data_directory()) / f"{DATASET}_{part}.ts"
    try:
        return parse(path.read_text())
    except (OSError, ValueError) as exc:
        raise BadDataError(str(path), str(exc), INSTALL_DATA) from exc


def parse(text: str) -> Recordings:
    """Parse `.ts` text of equally long recordings; classes are numbered in alphabetical order.

    Raises ValueError, naming the line, for a value that is no number or a recording of another shape.
    """
    windows: list[npt.NDArray[np.float32]] = []
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line[0] in "#@%":
            continue
        window, name = _recording(line, number)
        if windows and window.shape != windows[0].shape:
            msg = f"line {number}: shape {window.shape}, the others have {windows[0].shape}"
            raise ValueError(msg)
        windows.append(window)
        names.append(name)
    if not windows:
        msg = "no recordings"
        raise ValueError(msg)
    labels = sorted(set(names))
    return Recordings(np.stack(windows), np.array([labels.index(n) for n in names], np.int64), tuple(labels))


def _recording(line: str, number: int) -> tuple[npt.NDArray[np.float32], str]:
    *dimensions, name = line.strip().split(":")
    try:
        rows = [[float(value) for value in dimension.split(",")] for dimension in dimensions]
        window = np.array(rows, np.float32).T
    except ValueError as exc:
        msg = f"line {number}: {exc}"
        raise ValueError(msg) from exc
    if window.ndim != 2:  # noqa: PLR2004
        msg = f"line {number}: not dimensions separated by ':' and a class name"
        raise ValueError(msg)
    return window, name


def plan(sensors: int, recordings: int, windows: int) -> list[list[int]]:
    """Which recording each sensor replays, in order: at least `windows` in all, the same number for every sensor.

    Sensors begin at different recordings, so that at any moment several activities are on the air.
    """
    each = -(-windows // sensors)
    stride = max(1, recordings // sensors)
    return [[(sensor * stride + i) % recordings for i in range(each)] for sensor in range(sensors)]
