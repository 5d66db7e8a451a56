"""Trains the demo's model and writes what `edged convert` needs. Runs as a child.

`python -m converters.demo.train DIR` makes DIR/saved_model, DIR/calibration.npz (the training windows), DIR/eval.npz
(test windows and labels) and DIR/labels.txt; standard output gets one JSON line with the training time, the accuracy
on the test windows and the signature's input name. The seed is fixed: the same packages on the same machine give the
same model.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from converters.demo import recordings
from edged.clock import NS_PER_S, now_ns

SEED = 0
EPOCHS = 60
BATCH = 8


def main(out: Path) -> int:
    """Train, export, write the data files."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    train, test = recordings.load("TRAIN"), recordings.load("TEST")
    began = now_ns()
    model = _fit(train)
    seconds = (now_ns() - began) / NS_PER_S
    right = model.predict(test.x, verbose=0).argmax(axis=1) == test.y
    name = _export(model, out / "saved_model", train.x.shape[1:])
    np.savez(out / "calibration.npz", **{name: train.x})
    np.savez(out / "eval.npz", **{name: test.x}, labels=test.y)
    (out / "labels.txt").write_text("\n".join(train.labels) + "\n")
    facts = {"train_s": round(seconds, 2), "accuracy": float(right.mean()), "input": name}
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _fit(train: recordings.Recordings) -> Any:
    import keras  # noqa: PLC0415  # only this child process pays for it

    keras.utils.set_random_seed(SEED)
    model = network(train.x, len(train.labels), "window")
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy")
    model.fit(train.x, train.y, epochs=EPOCHS, batch_size=BATCH, verbose=0)
    return model


def network(train: npt.NDArray[np.float32], classes: int, name: str) -> Any:
    """Return the untrained classifier of windows [count, steps, channels]; `train` decides how they are normalised."""
    import keras  # noqa: PLC0415  # as above

    layer = keras.layers
    normalise = layer.Normalization(axis=-1)
    normalise.adapt(train)
    return keras.Sequential([
        keras.Input(train.shape[1:], name=name),
        normalise,
        layer.Conv1D(16, 5, padding="same", activation="relu"),
        layer.MaxPooling1D(2),
        layer.Conv1D(32, 5, padding="same", activation="relu"),
        layer.MaxPooling1D(2),
        layer.Conv1D(32, 3, padding="same", activation="relu"),
        layer.GlobalAveragePooling1D(),
        layer.Dropout(0.3),
        layer.Dense(classes, activation="softmax"),
    ])  # fmt: skip


def _export(model: Any, path: Path, shape: tuple[int, ...]) -> str:
    """Write the SavedModel with the batch pinned to 1; return the name of its one input."""
    import tensorflow as tf  # noqa: PLC0415

    # `model.export`, not `tf.saved_model.save`: the latter makes a SavedModel that converts to a model without weights.
    model.export(path, input_signature=[tf.TensorSpec((1, *shape), tf.float32, name="window")], verbose=False)
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    (name,) = signature.structured_input_signature[1]
    return str(name)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
