"""What every recipe leaves: SavedModel, calibration.npz, eval.npz and the SavedModel's own answers, floats.npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]


def seed() -> None:
    """Make what follows the same on every run."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()


def data(out: Path, calibration: Arrays, evaluation: Arrays, y: Any = None) -> None:
    """Write the samples, arrays [n, …] by input name. y: class numbers, or the targets of a regression."""
    np.savez(out / "calibration.npz", **calibration)
    np.savez(out / "eval.npz", **evaluation, **({} if y is None else {"y": y}))


def answers(out: Path, key: str = "serving_default") -> None:
    """Run the SavedModel on eval.npz in TensorFlow, a sample at a time; write floats.npz, output → [n, *shape]."""
    import tensorflow as tf

    function = tf.saved_model.load(str(out / "saved_model")).signatures[key]
    names = list(function.structured_input_signature[1])
    with np.load(out / "eval.npz") as file:
        arrays = {name: file[name] for name in names}
    count = len(next(iter(arrays.values())))
    found = [function(**{name: tf.constant(a[i : i + 1]) for name, a in arrays.items()}) for i in range(count)]
    np.savez(out / "floats.npz", **{name: np.concatenate([f[name].numpy() for f in found]) for name in found[0]})


def export(model: Any, out: Path, specs: Any = None) -> None:
    """Export a Keras 3 model; without specs the batch stays open."""
    model.export(out / "saved_model", input_signature=specs, verbose=False)
