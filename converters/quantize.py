"""One signature to TFLite bytes in one of the modes. Runs in the child process that has imported TensorFlow.

The signature is saved again with pinned shapes before it is converted: the converter finds every variable of what was
*loaded*, while of a Keras 3 model saved by `tf.saved_model.save` it finds none and writes a model without weights
(https://github.com/keras-team/keras/issues/19108).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from converters.options import Options
from converters.samples import Array, Samples
from converters.savedmodel import Loaded
from edged.errors import BadDataError

_SELECT = re.compile(r"^(TF Select|Custom) ops: (.+)$", re.MULTILINE)
_ERROR = re.compile(r"error: (?:loc\(.*\): )?(.+)")


def convert(loaded: Loaded, options: Options, samples: Samples | None, folder: Path) -> bytes:
    """Return the converted model; `folder` is for files on the way.

    Raises BadDataError with the converter's reason, naming the ops that TFLite does not have.
    """
    from tensorflow.lite.python.convert import ConverterError  # noqa: PLC0415  # child process only

    converter = _converter(loaded, folder)
    # Recurrent layers reserve a list for a batch that the graph inside leaves open, though the signature is pinned.
    converter._experimental_default_to_single_batch_in_tensor_list_ops = options.batch == 1  # noqa: SLF001  # no public name
    _configure(converter, options.quantize, samples)
    where = f"{options.model}, signature {loaded.key!r}"
    try:
        return bytes(converter.convert())
    except (ConverterError, RuntimeError, ValueError) as exc:
        raise refusal(where, options.quantize, str(exc)) from exc


def _converter(loaded: Loaded, folder: Path) -> Any:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    pinned = str(folder / "pinned")
    try:
        tf.saved_model.save(loaded.root, pinned, signatures={loaded.key: loaded.concrete})
    except (AssertionError, ValueError, TypeError, AttributeError, KeyError):
        # Some objects (of older TensorFlow, or half restored) cannot be saved again; their graph can still be frozen.
        return tf.lite.TFLiteConverter.from_concrete_functions([loaded.concrete], loaded.root)
    return tf.lite.TFLiteConverter.from_saved_model(pinned, signature_keys=[loaded.key])


def _configure(converter: Any, quantize: str, samples: Samples | None) -> None:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    if quantize == "none":
        return
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    # Per-channel dense weights need FULLY_CONNECTED v12, which tflite-runtime 2.14 does not have.
    converter._experimental_disable_per_channel_quantization_for_dense_layers = quantize == "dynamic"  # noqa: SLF001  # no public name
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if quantize in ("int8", "int16x8") and samples is not None:
        converter.representative_dataset = lambda: _representative(samples)
        converter.target_spec.supported_ops = [_integer_ops(quantize)]
        converter.inference_input_type = converter.inference_output_type = tf.int8 if quantize == "int8" else tf.int16


def _integer_ops(quantize: str) -> Any:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    if quantize == "int8":
        return tf.lite.OpsSet.TFLITE_BUILTINS_INT8
    return tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8


def _representative(samples: Samples) -> Iterator[dict[str, Array]]:
    for i in range(samples.count):
        yield {name: np.ascontiguousarray(array[i]) for name, array in samples.arrays.items()}


def refusal(where: str, quantize: str, text: str) -> BadDataError:
    """Return the error for what the converter said: the ops it lacks, or its first error line."""
    missing = [f"{kind} ops {names.strip()}" for kind, names in _SELECT.findall(text)]
    if missing:
        what = f"cannot be converted: {'; '.join(missing)} are not in TFLite"
        return BadDataError(where, what, "no runtime on a device has them: replace them in the model")
    first = next(iter(_ERROR.findall(text)), text.strip().splitlines()[0] if text.strip() else "no reason given")
    hint = "" if quantize == "none" else "try another --quantize, for example float16 or dynamic"
    return BadDataError(where, f"cannot be converted with --quantize {quantize}: {first}", hint)
