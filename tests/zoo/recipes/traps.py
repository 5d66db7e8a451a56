"""Small models, each with one property that converters stumble over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from zoo.recipes import saving

WORDS = 500


def two(out: Path) -> None:
    """Two inputs, first zulu, then alpha, of the same shape; the file has them in another order than the function."""
    import keras

    layer = keras.layers
    saving.seed()
    zulu, alpha = (keras.Input((8,), name=name) for name in ("zulu", "alpha"))
    sides = [layer.Dense(6, activation="relu")(side) for side in (zulu, alpha)]
    near, far = layer.Dense(3, name="near")(sides[0]), layer.Dense(3, name="far")(layer.concatenate(sides))
    saving.export(keras.Model([zulu, alpha], {"near": near, "far": far}), out)
    generator = np.random.default_rng(0)
    # Ranges ten times apart: a range bound to the other input is seen.
    x = {"zulu": generator.normal(0, 10, (240, 8)), "alpha": generator.normal(0, 1, (240, 8))}
    _split(out, {name: array.astype(np.float32) for name, array in x.items()})


def words(out: Path) -> None:
    """Word numbers (int32) and a float input: the numbers must stay whole in int8."""
    import keras

    layer = keras.layers
    saving.seed()
    ids, extra = keras.Input((12,), dtype="int32", name="ids"), keras.Input((4,), name="extra")
    mean = layer.GlobalAveragePooling1D()(layer.Embedding(WORDS, 16)(ids))
    out_ = layer.Dense(5, name="scores")(layer.Dense(32, activation="relu")(layer.concatenate([mean, extra])))
    saving.export(keras.Model([ids, extra], out_), out)
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, WORDS, (240, 12)).astype(np.int32)
    _split(out, {"ids": numbers, "extra": generator.normal(size=(240, 4)).astype(np.float32)})


def logarithm(out: Path) -> None:
    """The logarithm of what is never 0 in float, and is 0 once it is rounded to int8."""
    _function(out, lambda tf, x: tf.math.log(x) - tf.reduce_mean(tf.math.log(x), 1, keepdims=True), _powers())


def direction(out: Path) -> None:
    """x / |x|: no answer for silence."""
    x = np.random.default_rng(0).normal(size=(240, 16)).astype(np.float32)
    _function(out, lambda tf, x: x / tf.sqrt(tf.reduce_sum(tf.square(x), 1, keepdims=True)), x)
    x[220] = 0
    np.savez(out / "silent.npz", x=x[200:])


def huge(out: Path) -> None:
    """A weight that float16 cannot hold."""
    large = np.random.default_rng(1).uniform(0.5, 2, (16, 64)).astype(np.float32)
    large[3, 5] = 1e6
    _function(out, lambda tf, x: tf.matmul(x, large), _normal())


def dice(out: Path) -> None:
    """Adds a random number: no two answers are the same."""
    _function(out, lambda tf, x: x + tf.random.uniform([16], seed=1), _normal())


def inverse(out: Path) -> None:
    """An op of TensorFlow that TFLite lacks."""
    x = np.random.default_rng(0).normal(size=(240, 3, 3)).astype(np.float32) + 3 * np.eye(3, dtype=np.float32)
    _function(out, lambda tf, x: tf.linalg.inv(x), x)


def remembers(out: Path) -> None:
    """A Keras 2 LSTM: it becomes one fused op whose state outlives an inference."""
    import tensorflow as tf
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    source = tf_keras.Input((10, 4), batch_size=1, name="x")
    model = tf_keras.Model(source, tf_keras.layers.Dense(3)(tf_keras.layers.LSTM(8)(source)))
    serve = tf.function(lambda x: {"y": model(x)}).get_concrete_function(
        tf.TensorSpec((1, 10, 4), tf.float32, name="x")
    )
    tf.saved_model.save(model, str(out / "saved_model"), signatures=serve)
    _split(out, {"x": np.random.default_rng(0).normal(size=(240, 10, 4)).astype(np.float32)})


def _normal() -> Any:
    return np.random.default_rng(0).normal(size=(240, 16)).astype(np.float32)


def _powers() -> Any:
    return (10 ** np.random.default_rng(0).uniform(-5, 0, (240, 16))).astype(np.float32)


def _function(out: Path, function: Any, x: Any) -> None:
    """Save y = function(tf, x) with an open batch."""
    import tensorflow as tf

    module = tf.Module()
    spec = tf.TensorSpec([None, *x.shape[1:]], tf.float32, name="x")
    module.serve = tf.function(lambda x: {"y": function(tf, x)}, input_signature=[spec])
    tf.saved_model.save(module, str(out / "saved_model"), signatures=module.serve)
    _split(out, {"x": x})


def _split(out: Path, arrays: saving.Arrays) -> None:
    saving.data(out, {name: a[:200] for name, a in arrays.items()}, {name: a[200:] for name, a in arrays.items()})
    saving.answers(out)
