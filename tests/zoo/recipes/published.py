"""Models that others have trained, out of their packages."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from support import zoodata
from zoo.recipes import saving

# Windows of 30 s in a row, and features of each, that the sleep model sees here.
EPOCHS = 40
FEATURES = 36


def pitch(out: Path) -> None:
    """basic-pitch: Keras 2, saved with its optimizer. Its authors' own model.tflite goes beside it."""
    import tf_keras  # noqa: F401  # knows the optimizer's slots

    where = zoodata.folder("basic_pitch", "saved_models", "icassp_2022")
    _copy(where / "nmp", out / "saved_model")
    (out / "authors.tflite").write_bytes((where / "nmp.tflite").read_bytes())
    saving.data(out, {"input_2": zoodata.music(100, 1)}, {"input_2": zoodata.music(16, 2)})
    saving.answers(out)


def _copy(source: Path, target: Path) -> None:
    import shutil

    shutil.copytree(source, target)


def faces_r(out: Path) -> None:
    """mtcnn's R net: saved by tf.saved_model.save, which leaves the converter without weights."""
    from mtcnn.stages.stage_rnet import StageRNet

    _faces(out, StageRNet()._model, 24)


def faces_o(out: Path) -> None:
    """mtcnn's O net, as faces_r."""
    from mtcnn.stages.stage_onet import StageONet

    _faces(out, StageONet()._model, 48)


def faces_p(out: Path) -> None:
    """mtcnn's P net: an image of any size."""
    import tensorflow as tf
    from mtcnn.stages.stage_pnet import StagePNet

    model = StagePNet()._model
    tf.saved_model.save(model, str(out / "saved_model"), signatures=_named(model, [None, None, None, 3]))
    x = (zoodata.crops(120, 64, 3) - 127.5) / 128
    saving.data(out, {"x": x[:100]}, {"x": x[100:]})
    saving.answers(out)


def _named(function: Any, shape: list[int | None]) -> Any:
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, name="x")])
    def serve(x: Any) -> dict[str, Any]:
        found = function(x)
        # A face or not: two numbers; a box: four; five points of a face: ten.
        return {{2: "faces", 4: "boxes", 10: "points"}[answer.shape[-1]]: answer for answer in found}

    return serve


def _faces(out: Path, model: Any, size: int) -> None:
    """Save the model as it is, with samples of which half are faces."""
    import tensorflow as tf

    both = [zoodata.faces(200, size, 3), zoodata.crops(200, size, 3)]
    x = (np.stack(both, 1).reshape(-1, size, size, 3) - 127.5) / 128
    tf.saved_model.save(model, str(out / "saved_model"), signatures=_named(model, [None, size, size, 3]))
    saving.data(out, {"x": x[:200]}, {"x": x[200:]}, np.tile([1, 0], 100))
    # Boxes are four numbers and points ten: only this says that the labels are not of them.
    (out / "post.yaml").write_text("output: faces\n")
    saving.answers(out)


def sleep(out: Path) -> None:
    """sleepecg's recurrent model of sleep stages, exported with an open batch; and the Keras file itself."""
    import keras
    import tensorflow as tf

    with zipfile.ZipFile(zoodata.folder("sleepecg", "classifiers", "wrn-gru-mesa.zip")) as file:
        (out / "model.keras").write_bytes(io.BytesIO(file.read("classifier.keras")).getvalue())
    model = keras.saving.load_model(out / "model.keras", compile=False)
    saving.export(model, out, [tf.TensorSpec((None, EPOCHS, FEATURES), tf.float32, name="x")])
    x = _nights(140)
    saving.data(out, {"x": x[:100]}, {"x": x[100:]})
    # The Keras file's own name of the input.
    np.savez(out / "layer.npz", input_layer=x[100:])
    saving.answers(out)


def _nights(count: int) -> Any:
    """Return features that wander from window to window, [count, EPOCHS, FEATURES]."""
    steps = np.random.default_rng(5).normal(size=(count, EPOCHS, FEATURES))
    walk = np.cumsum(steps, axis=1) / np.sqrt(np.arange(1, EPOCHS + 1))[:, np.newaxis]
    return (walk + np.random.default_rng(6).normal(size=(count, 1, FEATURES))).astype(np.float32)


def mobilenet(out: Path) -> None:
    """MobileNetV2 with random weights: for size and speed."""
    import keras

    _application(out, keras.applications.MobileNetV2, calibration=20, evaluation=8)


def resnet(out: Path) -> None:
    """ResNet50 with random weights: for size and speed."""
    import keras

    _application(out, keras.applications.ResNet50, calibration=6, evaluation=4)


def _application(out: Path, builder: Any, *, calibration: int, evaluation: int) -> None:
    import keras

    saving.seed()
    # No softmax: of random weights it makes a thousand equal shares, all 0 in int8.
    source = keras.Input((224, 224, 3), name="x")
    model = builder(weights=None, input_tensor=source, classifier_activation=None)
    x = zoodata.crops(calibration + evaluation, 224, 4) / 127.5 - 1
    _settle(model, x[:calibration])
    saving.export(model, out)
    saving.data(out, {"x": x[:calibration]}, {"x": x[calibration:]})
    saving.answers(out)


def _settle(model: Any, x: Any) -> None:
    """Give the batch normalizations real means and variances, without which random weights let everything fade."""
    import keras

    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(x, training=True)
