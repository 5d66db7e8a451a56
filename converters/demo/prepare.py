"""The demo's first half: a trained model, a bundle made by the real command line, a configuration for the daemon."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from converters.demo import recordings, sensors
from converters.demo.children import Children
from edged import bundle
from edged.errors import UnavailableError

DEVICE = "demo"
MODEL = "har"
TRAIN_S = 180.0
CONVERT_S = 300.0
# How `edged convert` begins a line that its user should read.
WARNING = "warning: "


@dataclass(frozen=True)
class Prepared:
    """A bundle and what was measured on the way. input_name: the array's name in `eval_data`."""

    bundle: Path
    eval_data: Path
    input_name: str
    samples: int
    facts: dict[str, Any]


def check_installed() -> None:
    """Raise UnavailableError, with the line to type, when TensorFlow or the recordings are missing."""
    if importlib.util.find_spec("tensorflow") is None:
        raise UnavailableError(
            "edged demo", "TensorFlow is not installed", "pip install '.[demo]' in the checkout, or make demo"
        )
    recordings.data_directory()


def train(children: Children, directory: Path) -> dict[str, Any]:
    """Train in a child; return its facts: train_s, accuracy, input."""
    return children.python("training", "converters.demo.train", str(directory)).finish(TRAIN_S)


def convert(children: Children, directory: Path, trained: dict[str, Any]) -> Prepared:
    """Convert to int8 as a user would, with `edged convert`; return the bundle it made."""
    out, evaluation = directory / "bundle", directory / "eval.npz"
    child = children.python(
        "conversion", "edged", "convert", str(directory / "saved_model"), "-o", str(out), "--name", MODEL,
        "--version", "1", "--quantize", "int8", "--calibration", str(directory / "calibration.npz"),
        "--eval", str(evaluation), "--labels", str(directory / "labels.txt"),
    )  # fmt: skip
    child.finish(CONVERT_S)
    made = bundle.read(out)
    log = child.log.read_text(errors="replace").splitlines()
    facts = {
        "model": f"{MODEL} v{made.manifest.version}, {made.manifest.quantize}, {len(made.model):,} bytes "
        f"(trained in {trained['train_s']:.1f} s, float accuracy {trained['accuracy']:.3f})",
        "parity": "; ".join(
            f"{q.output}: {q.metric} {q.value:.4g} on {q.samples} samples (limit {q.threshold:.4g})"
            for q in made.manifest.quality
        ),
        "warnings": [line.removeprefix(WARNING) for line in log if line.startswith(WARNING)],
    }
    return Prepared(out, evaluation, trained["input"], made.manifest.inputs[0].shape[1], facts)


def write_config(path: Path, bundle_path: Path, broker_url: str, samples: int) -> None:
    """Write the daemon's configuration: one model, one stream whose windows are whole recordings."""
    stream = {
        "name": sensors.STREAM, "topic": sensors.topic("+"), "key_level": 1, "decode": "json",
        "fields": list(recordings.FIELDS), "seq": "n", "time": "t",
        "window": {"length": samples, "hop": samples}, "model": MODEL,
    }  # fmt: skip
    config = {
        "device": DEVICE,
        "broker": {"url": broker_url},
        "models": [{"name": MODEL, "bundle": str(bundle_path)}],
        "streams": [stream],
        "metrics": {"interval_s": 1},
        "state_dir": str(path.parent / "state"),
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
