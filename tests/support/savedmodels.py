"""Small SavedModels, made once by TensorFlow in a child process: TensorFlow never enters the test process.

dense     Keras 3, 16 → 8 relu → 4 softmax, saved by tf.saved_model.save: the converter's own reader finds no weights
wide      Keras 3 export, 32 → 64 → 4 softmax: dense weights large enough for the dynamic range
two       signature `predict`, inputs z and a (in this order), outputs z_diff = z - a, a_sum = z + a, m_first = z
many      signatures text (a string input), inverse (an op that TFLite lacks), open (open shape)
nothing   no signature
gru       a bidirectional GRU: the TensorFlow converter dies of it with int8
counter   keeps a running sum
ids       int32 and float inputs with a batch of any size; outputs o (float) and k = argmax (int64)
gray      uint8 image [?, 8, 6, 1] → mean / 255
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from support import require

ROOT = Path(__file__).resolve().parent.parent.parent
_ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "TF_ENABLE_ONEDNN_OPTS": "0"}

_MAKE = """
import sys, numpy as np, tensorflow as tf, keras
out = sys.argv[1]
keras.utils.set_random_seed(0)
layers = keras.layers

def spec(shape, dtype, name):
    return tf.TensorSpec(shape, dtype, name=name)

dense = keras.Sequential(
    [keras.Input((16,)), layers.Dense(8, activation="relu"), layers.Dense(4, activation="softmax")]
)
tf.saved_model.save(dense, out + "/dense")
np.savez(out + "/dense_weights.npz", *dense.get_weights())
keras.Sequential(
    [keras.Input((32,), name="x"), layers.Dense(64, activation="relu"), layers.Dense(4, activation="softmax")]
).export(out + "/wide", verbose=False)
keras.Sequential(
    [keras.Input((10, 6), name="x"), layers.Bidirectional(layers.GRU(8, return_sequences=True)), layers.Dense(4)]
).export(out + "/gru", verbose=False)

class Models(tf.Module):
    def __init__(self):
        self.total = tf.Variable(tf.zeros([1, 3]))
        self.table = tf.Variable(np.arange(40, dtype=np.float32).reshape(10, 4))

    @tf.function(input_signature=[spec([None], tf.float32, "z"), spec([None], tf.float32, "a")])
    def two(self, z, a):
        return {"z_diff": z - a, "a_sum": z + a, "m_first": z * 1.0}

    @tf.function(input_signature=[spec([None], tf.string, "words"), spec([None, 2], tf.float32, "v")])
    def text(self, words, v):
        return {"o": v * 2.0}

    @tf.function(input_signature=[spec([None, 3, 3], tf.float32, "v")])
    def inverse(self, v):
        return {"o": tf.linalg.inv(v)}

    @tf.function(input_signature=[spec([None, None, 3], tf.float32, "v")])
    def open(self, v):
        return {"o": v * 2.0}

    @tf.function(input_signature=[spec([1, 3], tf.float32, "v")])
    def counter(self, v):
        self.total.assign_add(v)
        return {"sum": self.total * 1.0}

    @tf.function(input_signature=[spec([None, 3], tf.int32, "ids"), spec([None, 4], tf.float32, "v")])
    def ids(self, ids, v):
        return {"o": tf.reduce_sum(tf.gather(self.table, ids), 1) + v, "k": tf.argmax(v, 1)}

    @tf.function(input_signature=[spec([None, 8, 6, 1], tf.uint8, "pixels")])
    def gray(self, pixels):
        return {"mean": tf.reduce_mean(tf.cast(pixels, tf.float32) / 255.0, [1, 2])}

m = Models()
tf.saved_model.save(m, out + "/two", signatures={"predict": m.two})
tf.saved_model.save(m, out + "/many", signatures={"text": m.text, "inverse": m.inverse, "open": m.open})
tf.saved_model.save(m, out + "/counter", signatures=m.counter)
tf.saved_model.save(m, out + "/ids", signatures=m.ids)
tf.saved_model.save(m, out + "/gray", signatures=m.gray)
tf.saved_model.save(tf.Module(), out + "/nothing")
naive = tf.lite.TFLiteConverter.from_saved_model(out + "/dense").convert()
open(out + "/weightless.tflite", "wb").write(naive)
"""

_REFUSALS = """
import json, sys
from pathlib import Path
from converters import work
from edged.errors import EdgedError
jobs, out = json.loads(Path(sys.argv[1]).read_text()), []
for number, job in enumerate(jobs):
    folder = Path(sys.argv[1] + f".{number}")
    folder.mkdir()
    try:
        work.run(job, folder, lambda stage: None)
        out.append(["", ""])
    except EdgedError as exc:
        out.append([type(exc).__name__, str(exc)])
Path(sys.argv[1] + ".out").write_text(json.dumps(out))
"""


@functools.cache
def made() -> Path:
    """Return the directory of all models, making them on the first call of the session."""
    require.packages("tensorflow")
    out = Path(tempfile.mkdtemp(prefix="edged-savedmodels-"))
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    _child(_MAKE, str(out))
    return out


def refusals(jobs: list[dict[str, Any]], folder: Path) -> list[tuple[str, str]]:
    """Run jobs of converters.work in one TensorFlow child; return (error class, message) of each, or two blanks."""
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs))
    _child(_REFUSALS, str(file))
    return [(name, text) for name, text in json.loads(Path(f"{file}.out").read_text())]


def _child(source: str, *args: str) -> None:
    environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", source, *args], env=environment, capture_output=True, text=True, check=False, timeout=150
    )
    assert done.returncode == 0, done.stderr[-3000:]


def dense_answers(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the `dense` model answers, computed by numpy from its weights; x is [n, 16]."""
    with np.load(made() / "dense_weights.npz") as file:
        w1, b1, w2, b2 = (file[key].astype(np.float64) for key in file.files)
    logits = np.maximum(x.astype(np.float64) @ w1 + b1, 0) @ w2 + b2
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
