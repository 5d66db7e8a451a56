"""Small SavedModels, made once by TensorFlow in a child process: TensorFlow never enters the test process.

dense     Keras 3, 16 → 8 relu → 4 softmax, saved by tf.saved_model.save: the converter's own reader finds no weights
wide      Keras 3 export, 32 → 64 → 4 softmax: dense weights large enough for the dynamic range
two       signature `predict`, inputs z and a (in this order), outputs z_diff = z - a, a_sum = z + a, m_first = z
many      signatures text (a string input), inverse (an op that TFLite lacks), open (open shape);  nothing: none
gru       a bidirectional GRU: the TensorFlow converter dies of it with int8
counter   keeps a running sum;  gray: uint8 image [?, 8, 6, 1] → mean / 255
ids       int32 and float inputs with a batch of any size; outputs o (float) and k = argmax (int64)
first     TensorFlow 1, handles for variables: tags `train` (signatures predict, words) and `gpu,serve` (predict)
oldest    TensorFlow 1, variables of the first kind, a table and an empty tag set: predict (x → y), words
slots     Keras 2 with its optimizer's slots, 16 → 4; slots_answers.npz: x and y, by Keras 2 itself
edges     signatures mask and boxes (the data decide the size of the output), empty (a [1, 0] output), divide (12 // v)
named     signatures own and odd: inputs `self` and `a b`
masked    an infinite constant before a softmax;  sick: weights with NaN and infinity
texts     signatures classes (an output of text), good, other, words (an input of text)
k3.keras, k3.h5, k3_gru.keras   Keras 3;  k2.h5, k2_lstm.keras   Keras 2: the LSTM is one that Keras 3 cannot read
lambda.keras, custom.keras, unbuilt.keras, old_lambda.h5   what must be refused
*_answers.npz   x and y of a Keras file's model, by the Keras that made it
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
from importlib.util import find_spec
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

class Edges(tf.Module):
    @tf.function(input_signature=[spec([None, 4], tf.float32, "v")])
    def mask(self, v):
        return {"o": tf.boolean_mask(v, v > 0)}

    @tf.function(input_signature=[spec([None, 6, 4], tf.float32, "v")])
    def boxes(self, v):
        return {"o": tf.image.non_max_suppression(v[0], v[0, :, 0], 3)}

    @tf.function(input_signature=[spec([None, 4], tf.float32, "v")])
    def empty(self, v):
        return {"o": v[:, :0], "fine": v * 2.0}

    @tf.function(input_signature=[spec([None, 4], tf.int32, "v")])
    def divide(self, v):
        return {"o": 12 // v}

edges = Edges()
shown = {"mask": edges.mask, "boxes": edges.boxes, "empty": edges.empty, "divide": edges.divide}
tf.saved_model.save(edges, out + "/edges", signatures=shown)

class Odd(tf.Module):
    def __init__(self):
        self.fine = tf.Variable(np.eye(4, dtype=np.float32), name="fine")
        self.bad = tf.Variable(np.float32([[np.nan, 1, np.inf, np.nan]]), name="bad")

    @tf.function(input_signature=[spec([None, 4], tf.float32, "v")])
    def sick(self, v):
        return {"o": tf.matmul(v, self.fine) + self.bad}

    @tf.function(input_signature=[spec([None, 4], tf.float32, "v")])
    def masked(self, v):
        return {"o": tf.nn.softmax(tf.matmul(v, self.fine) + tf.constant([0, 0, -np.inf, 0]))}

    @tf.function(input_signature=[spec([None, 4], tf.float32, "v")])
    def classes(self, v):
        return {"name": tf.gather(tf.constant(["a", "b", "c", "d"]), tf.argmax(v, 1))}

    @tf.function(input_signature=[spec([None], tf.string, "words")])
    def words(self, words):
        return {"length": tf.strings.length(words)}

odd = Odd()
tf.saved_model.save(odd, out + "/sick", signatures=odd.sick)
tf.saved_model.save(odd, out + "/masked", signatures=odd.masked)
texts = {"classes": odd.classes, "good": odd.masked, "other": odd.masked, "words": odd.words}
tf.saved_model.save(odd, out + "/texts", signatures=texts)

v1 = tf.compat.v1

def first(path, sets, handles):
    builder = v1.saved_model.builder.SavedModelBuilder(path)
    with v1.Session(graph=tf.Graph()) as session:
        x, words = v1.placeholder(tf.float32, [None, 4]), v1.placeholder(tf.string, [None])
        start = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
        w = v1.get_variable("w", initializer=start, use_resource=handles)
        pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([1]))
        ids = tf.lookup.StaticHashTable(pairs, -1).lookup(words)
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        make = v1.saved_model.signature_def_utils.predict_signature_def
        known = {"predict": make({"x": x}, {"y": tf.matmul(x, w)}), "words": make({"words": words}, {"ids": ids})}
        tables = v1.tables_initializer()
        builder.add_meta_graph_and_variables(session, sets[0], signature_def_map=known, main_op=tables)
        for tags in sets[1:]:
            builder.add_meta_graph(tags, signature_def_map={"predict": known["predict"]})
    builder.save()

def named(path, inputs):
    builder = v1.saved_model.builder.SavedModelBuilder(path)
    make = v1.saved_model.signature_def_utils.predict_signature_def
    with v1.Session(graph=tf.Graph()) as session:
        x = v1.placeholder(tf.float32, [None, 4])
        known = {key: make({name: x}, {"y": x * 2.0}) for key, name in inputs.items()}
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=known)
    builder.save()

named(out + "/named", {"own": "self", "odd": "a b"})
first(out + "/first", [["train"], ["serve", "gpu"]], True)
first(out + "/oldest", [[]], False)

x, series = np.random.default_rng(1).normal(size=(1, 16)).astype("f"), np.ones((1, 5, 3), "f")

def answered(name, model, x):
    np.savez(out + f"/{name}_answers.npz", x=x, y=np.asarray(model(x)))

new = keras.Sequential([keras.Input((16,), name="x"), layers.Dense(4, activation="relu"), layers.Dense(2)])
new.compile("adam", "mse")
for name in ("k3.keras", "k3.h5"):
    new.save(out + "/" + name)
    answered(name, new, x)
new.save_weights(out + "/k3.weights.h5")
gru = keras.Sequential([keras.Input((5, 3), name="x"), layers.GRU(2)])
gru.save(out + "/k3_gru.keras")
answered("k3_gru.keras", gru, series)

class Own(layers.Layer):
    call = lambda self, t: t * 2

keras.Sequential([keras.Input((3,)), Own()]).save(out + "/custom.keras")
keras.Sequential([keras.Input((3,)), layers.Lambda(lambda t: t, name="same")]).save(out + "/lambda.keras")
keras.Sequential([layers.Dense(3)]).save(out + "/unbuilt.keras")

if find_spec("tf_keras"):
    import tf_keras

    old = tf_keras.Sequential([tf_keras.layers.Input((16,)), tf_keras.layers.Dense(4)])
    old.compile(tf_keras.optimizers.legacy.Adam(), "mse")
    old.fit(x, np.ones((1, 4)), verbose=0)
    for name in ("slots", "k2.h5"):
        old.save(out + "/" + name)
        answered(name, old, x)
    lstm = tf_keras.Sequential([tf_keras.layers.Input((5, 3)), tf_keras.layers.LSTM(2)])
    lstm.save(out + "/k2_lstm.keras")
    answered("k2_lstm.keras", lstm, series)
    lstm.add(tf_keras.layers.Lambda(lambda t: t * 2, name="twice"))
    lstm.save(out + "/old_lambda.h5")

naive = tf.lite.TFLiteConverter.from_saved_model(out + "/dense").convert()
open(out + "/weightless.tflite", "wb").write(naive)
"""

_REFUSALS = """
import dataclasses, json, sys
from pathlib import Path
from converters import child, conversions, work
from edged.bundle import Postprocess
from edged.errors import EdgedError
jobs, out = json.loads(Path(sys.argv[1]).read_text()), []
for number, job in enumerate(jobs):
    folder = Path(sys.argv[1] + f".{number}")
    folder.mkdir()
    mode = job["options"]["quantize"]
    job = {"modes": [mode], "labels": [], "postprocess": dataclasses.asdict(Postprocess()), **job}
    try:
        work.run(job, folder, lambda stage: None)
        error = json.loads((folder / mode / conversions.RESULT).read_text()).get("error")
        out.append(["", ""] if error is None else [error["class"], str(child.error(error))])
    except EdgedError as exc:
        out.append([type(exc).__name__, str(exc)])
Path(sys.argv[1] + ".out").write_text(json.dumps(out))
"""

# A job with `keras2: false` runs as if tf_keras were not installed; those with `true` come last.
_LOADS = """
import dataclasses, json, sys
from pathlib import Path
import numpy as np
from converters import quantize, savedmodel, work
from converters.compat import CompatFlags
from converters.options import Options
from converters.samples import Samples
work._start_tensorflow()
jobs, out = json.loads(Path(sys.argv[1]).read_text()), []
for number, job in enumerate(jobs):
    folder = Path(sys.argv[1] + f".{number}")
    folder.mkdir()
    if not job["keras2"]:
        sys.modules["tf_keras"] = None
    elif sys.modules.get("tf_keras", 0) is None:
        del sys.modules["tf_keras"]
    options = Options.from_plain(job["options"])
    result = {"error": ["", ""]}
    try:
        loaded = savedmodel.load(options, folder)
        result |= {"source": dataclasses.asdict(loaded.source), "notes": loaded.notes}
        result["inputs"] = {i.name: [i.dtype, i.shape] for i in loaded.inputs}
        if job["x"]:
            x = dict(np.load(job["x"]))
            np.savez(folder / "answers.npz", **loaded({loaded.inputs[0].name: x["x"]}))
        for mode in job["modes"]:
            rng = np.random.default_rng(0)
            draw = {i.name: rng.normal if i.is_float else lambda size: rng.integers(0, 9, size) for i in loaded.inputs}
            arrays = {i.name: draw[i.name](size=(9, *i.shape)).astype(i.dtype) for i in loaded.inputs}
            asked, flags = dataclasses.replace(options, quantize=mode), CompatFlags(**job["flags"])
            model = quantize.convert(loaded, asked, Samples("random", arrays), flags)
            (folder / f"{mode}.tflite").write_bytes(model)
    except Exception as exc:
        result["error"] = [type(exc).__name__, str(exc)]
    out.append(result)
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
    return [(name, text) for name, text in _jobs(_REFUSALS, jobs, folder)]


def loads(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Load and convert in one TensorFlow child; a job holds options, modes, flags, keras2 and x (an .npz, or "").

    Returns of each: error (class and text), source, notes, inputs, and folder with MODE.tflite and answers.npz.
    """
    found = _jobs(_LOADS, jobs, folder)
    return [{**one, "folder": folder / f"jobs.json.{number}"} for number, one in enumerate(found)]


def _jobs(source: str, jobs: list[dict[str, Any]], folder: Path) -> list[Any]:
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs))
    _child(source, str(file))
    found: list[Any] = json.loads(Path(f"{file}.out").read_text())
    return found


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
