"""Models trained here, in seconds and from a fixed seed, on real data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support import zoodata
from zoo.recipes import saving

from converters.demo.train import network

HOURS = 48


def digits(out: Path) -> None:
    """A small image classifier; 540 held out."""
    x, y = zoodata.digits()
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[540:], order[:540]
    model = _classifier(_images(), x[train], y[train], epochs=20)
    saving.export(model, out)
    saving.data(out, {"x": x[train][:200]}, {"x": x[test]}, y[test])
    saving.answers(out)


def motions(out: Path) -> None:
    """Smartwatch recordings of four activities; and calibrations that are no calibrations."""
    (x, y), (held, truth) = (zoodata.recordings("BasicMotions", part) for part in ("TRAIN", "TEST"))
    saving.export(_classifier(_series(4, x), x, y, epochs=60, batch=8), out)
    saving.data(out, {"x": x}, {"x": held}, truth)
    generator = np.random.default_rng(0)
    np.savez(out / "one.npz", x=np.repeat(x[:1], 40, axis=0))
    np.savez(out / "noise.npz", x=generator.uniform(-1, 1, (100, *x.shape[1:])).astype(np.float32))
    np.savez(out / "zeros.npz", x=np.zeros((100, *x.shape[1:]), np.float32))
    saving.answers(out)


def power(out: Path) -> None:
    """A day's power demand, summer or winter: 67 days to learn from, 1,029 held out."""
    _recordings(out, "ItalyPowerDemand", 2, epochs=60)


def vowels(out: Path) -> None:
    """Nine speakers by two Japanese vowels; 370 held out."""
    _recordings(out, "JapaneseVowels_eq", 9, epochs=40)


def _recordings(out: Path, name: str, classes: int, *, epochs: int) -> None:
    (x, y), (held, truth) = (zoodata.recordings(name, part) for part in ("TRAIN", "TEST"))
    saving.export(_classifier(_series(classes, x), x, y, epochs=epochs, batch=8), out)
    saving.data(out, {"x": x}, {"x": held}, truth)
    saving.answers(out)


def water(out: Path) -> None:
    """The next hour's flow from the last 48; the hours of every fifth day are held out. y is l/s, as the output is."""
    import keras

    x, y = zoodata.windows(zoodata.water_flow(), HOURS)
    held = np.arange(len(x)) // 24 % 5 == 4
    known, target = x[~held], y[~held]
    layer, mean, spread = keras.layers, float(known.mean()), float(known.std())
    saving.seed()
    source = keras.Input((HOURS, 1), name="x")
    scaled = layer.Rescaling(1 / spread, -mean / spread)(source)
    seen = layer.Conv1D(16, 5, padding="causal", activation="relu")(scaled)
    seen = layer.Conv1D(16, 5, padding="causal", dilation_rate=2, activation="relu")(seen)
    change = layer.Dense(1)(layer.Dense(32, activation="relu")(layer.Flatten()(seen)))
    last = layer.Flatten()(layer.Cropping1D((HOURS - 1, 0))(scaled))
    model = keras.Model(source, layer.Rescaling(spread, mean)(layer.add([last, change])))
    model.compile(keras.optimizers.Adam(1e-3), "mae")
    model.fit(known, target, epochs=60, batch_size=32, verbose=0)
    saving.export(model, out)
    saving.data(out, {"x": known[::4]}, {"x": x[held]}, y[held])
    saving.answers(out)


def anomaly(out: Path) -> None:
    """An autoencoder whose one output is how badly it rebuilds a row; calibration rows are all normal."""
    import keras

    x, odd = zoodata.shuttle()
    normal, strange = x[odd == 0], x[odd == 1]
    layer, mean, spread = keras.layers, normal.mean(0), normal.std(0) + 1e-3
    # Now and then a sensor of a sound shuttle is far off too; what is called normal here has none of it.
    normal = normal[(np.abs(normal - mean) < 3 * spread).all(1)]
    saving.seed()
    source = keras.Input((9,), name="x")
    scaled = layer.Normalization(mean=mean, variance=spread**2)(source)
    rebuilt = layer.Dense(9)(layer.Dense(16, activation="relu")(layer.Dense(4, activation="relu")(scaled)))
    score = layer.Lambda(lambda pair: keras.ops.mean(keras.ops.square(pair[0] - pair[1]), 1, keepdims=True))
    rows = ((normal - mean) / spread)[:20000]
    learner = keras.Model(source, rebuilt)
    learner.compile(keras.optimizers.Adam(2e-3), "mse")
    learner.fit(normal[:20000], rows, epochs=3, batch_size=128, verbose=0)
    saving.export(keras.Model(source, score([scaled, rebuilt])), out)
    mixed, truth = np.concatenate([normal[-200:], strange[:100]]), np.repeat([0, 1], [200, 100])
    saving.data(out, {"x": normal[:400]}, {"x": mixed})
    np.savez(out / "odd.npz", odd=truth)
    saving.answers(out)


def _images() -> Any:
    import keras

    layer = keras.layers
    saving.seed()
    return keras.Sequential([
        keras.Input((8, 8, 1), name="x"),
        layer.Conv2D(16, 3, padding="same", activation="relu"),
        layer.MaxPooling2D(2),
        layer.Conv2D(32, 3, padding="same", activation="relu"),
        layer.Flatten(),
        layer.Dense(64, activation="relu"),
        layer.Dense(10, activation="softmax"),
    ])  # fmt: skip


def _series(classes: int, train: zoodata.Floats) -> Any:
    saving.seed()
    return network(train, classes, "x")


def _classifier(model: Any, x: Any, y: Any, *, epochs: int, batch: int = 32) -> Any:
    import keras

    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy")
    model.fit(x, y, epochs=epochs, batch_size=batch, verbose=0)
    return model
