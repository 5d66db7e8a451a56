"""The zoo: models made once by recipes in TensorFlow children, and converted by the real command.

A recipe's SavedModel and data are kept for the session, or in EDGED_ZOO_CACHE (a directory) for later ones too; the
directory's name tells the recipes' and readers' text, so a changed recipe is followed again.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from support import require

Arrays = dict[str, npt.NDArray[Any]]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "tensorflow",
    "aeon",
    "basic_pitch",
    "joblib",
    "lz4",
    "mtcnn",
    "river",
    "skimage",
    "sklearn",
    "sleepecg",
    "tf_keras",
)
_DETERMINISTIC = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_DETERMINISTIC_OPS": "1",
    "PYTHONHASHSEED": "0",
}
# The longest conversion of the zoo takes a small part of this on two cores.
LIMIT_S = 900


@functools.cache
def scratch() -> Path:
    """Return a directory of this session alone."""
    out = Path(tempfile.mkdtemp(prefix="edged-zoo-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    return out


@functools.cache
def _kept() -> Path:
    given = os.environ.get("EDGED_ZOO_CACHE")
    if not given:
        return scratch()
    sources = [*sorted((ROOT / "tests/zoo/recipes").glob("*.py")), ROOT / "tests/support/zoodata.py"]
    text = b"".join(path.read_bytes() for path in sources)
    return Path(given).absolute() / hashlib.sha256(text).hexdigest()[:16]


@dataclass(frozen=True)
class Made:
    """What a recipe left in its folder: saved_model, calibration.npz, eval.npz, floats.npz and files of its own."""

    folder: Path

    def arrays(self, name: str) -> Arrays:
        """Return a file's arrays by name."""
        with np.load(self.folder / f"{name}.npz") as file:
            return {key: file[key] for key in file.files}

    @property
    def inputs(self) -> Arrays:
        """The held-out samples by input name, [n, *shape]."""
        return {name: array for name, array in self.arrays("eval").items() if name != "y"}

    @property
    def y(self) -> npt.NDArray[Any]:
        """Class numbers or targets of the held-out samples."""
        return self.arrays("eval")["y"]

    @property
    def floats(self) -> Arrays:
        """The SavedModel's answers to the held-out samples, run in TensorFlow: output → [n, *shape]."""
        return self.arrays("floats")


@functools.cache
def made(name: str) -> Made:
    """Follow a recipe of tests/zoo/recipes, once."""
    require.packages(*PACKAGES)
    folder = _kept() / name
    if not (folder / "floats.npz").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _follow(name, folder)
    return Made(folder)


def _follow(name: str, folder: Path) -> None:
    environment = os.environ | _DETERMINISTIC | {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}", "KERAS_HOME": str(scratch())}
    command = [sys.executable, "-m", "zoo.recipes.make", name, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@dataclass(frozen=True)
class Conversion:
    """One run of `edged convert --json`. asked: mode and flags; folder: the bundle, there or not."""

    name: str
    asked: str
    code: int
    out: str
    err: str
    folder: Path

    @property
    def facts(self) -> dict[str, Any]:
        """The document that --json printed."""
        assert self.code == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def report(self) -> dict[str, Any]:
        """The document of what was tried: what --json printed, or what lies beside a bundle that was refused."""
        if self.code == 0:
            return self.facts
        found: dict[str, Any] = json.loads(self.folder.with_name("bundle-refused.json").read_text())
        return found

    @property
    def attempts(self) -> dict[str, dict[str, Any]]:
        """What was tried, by mode."""
        return {attempt["quantize"]: attempt for attempt in self.report["attempts"]}

    @property
    def words(self) -> str:
        """All that a person is told: the lines of standard error, and the document's warnings and notes."""
        notes = [note for attempt in self.report["attempts"] for note in attempt["notes"]]
        return "\n".join([self.err, *self.report["warnings"], *notes])

    @property
    def model(self) -> Path:
        """The converted file; the conversion must have succeeded."""
        assert self.code == 0, self.err
        return self.folder / "model.tflite"

    @property
    def manifest(self) -> dict[str, Any]:
        """The bundle's manifest as it lies on the disk."""
        found: dict[str, Any] = json.loads((self.folder / "bundle.json").read_text())
        return found

    @property
    def verdict(self) -> str:
        """What the command said, in one line."""
        if self.code == 0:
            return "passed"
        return f"exit {self.code}: {self.error}"

    @property
    def error(self) -> str:
        """The one line that says why there is no bundle."""
        lines = [line for line in self.err.splitlines() if line.startswith("edged: ")]
        assert len(lines) == 1, self.err
        return lines[0].removeprefix("edged: ")


@functools.cache
def convert(
    name: str, mode: str, *flags: str, calibrated: bool = True, model: str = "saved_model", hidden: str = ""
) -> Conversion:
    """Convert a model of the zoo as a person would, once for the same arguments.

    Paths in `flags` may be names of files in the recipe's folder, where the command runs. calibrated: with the
    recipe's calibration.npz where the mode takes one; its eval.npz is always given unless `flags` give another.
    hidden: a package that the command is not to find.
    """
    source = made(name)
    bundle = Path(tempfile.mkdtemp(dir=scratch())) / "bundle"
    data = ["--calibration", "calibration.npz"] if calibrated and mode not in ("none", "float16", "dynamic") else []
    data += [] if "--eval" in flags else ["--eval", "eval.npz"]
    fixed = ["-o", str(bundle), "--name", name.replace("_", "-"), "--version", "1", "--json", "--quantize", mode]
    done = edged("convert", model, *fixed, *data, *flags, cwd=source.folder, hidden=hidden)
    assert (done.returncode == 0) == bundle.exists()
    return Conversion(name, " ".join((mode, *flags)), done.returncode, done.stdout, done.stderr, bundle)


def edged(*args: str, cwd: Path | None = None, hidden: str = "") -> subprocess.CompletedProcess[str]:
    """Run the real command, as if the package `hidden` were not there; it never ends in a traceback."""
    front = Path(tempfile.mkdtemp(dir=scratch()))
    if hidden:
        (front / f"{hidden}.py").write_text(f"raise ImportError('no {hidden}')\n")
    done = subprocess.run(
        [sys.executable, "-m", "edged", *args], cwd=cwd, env=os.environ | {"PYTHONPATH": f"{front}:{ROOT}"},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done
