"""One signature to TFLite bytes in one of the modes. Runs in the child process that has imported TensorFlow.

What is converted is the signature as it was saved again after loading, with pinned shapes; see savedmodel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from converters import truth
from converters.compat import CompatFlags
from converters.options import Mode, Options
from converters.samples import Array, Samples
from converters.savedmodel import Loaded
from edged.errors import BadDataError

_FLEX, _CUSTOM = "TF Select", "Custom"
_MISSING = re.compile(rf"^({_FLEX}|{_CUSTOM}) ops: (.+)$", re.MULTILINE)
_ERROR = re.compile(r"error: (?:loc\(.*\): )?(.+)")
_OTHER = "try another --quantize, for example float16 or dynamic"
# What the converter says, what it means, and what to do.
_KNOWN = (
    (
        "requires element_shape to be static",
        "a recurrent layer needs a batch of 1, or one that is fixed in the model itself",
        "leave out --dynamic-batch and --batch",
    ),
    (
        "Select TensorFlow op(s), included in the given model, is(are) not supported",
        "calibration runs the model in TFLite, which cannot run ops of TensorFlow itself",
        _OTHER,
    ),
)


def convert(loaded: Loaded, options: Options, samples: Samples | None, flags: CompatFlags) -> bytes:
    """Return the model, converted in the mode `options.quantize`.

    samples: what calibrates, for the modes that need it. flags: what makes the file load on older runtimes.
    Raises BadDataError with the converter's reason, naming the ops that TFLite does not have.
    """
    from tensorflow.lite.python.convert import ConverterError  # noqa: PLC0415  # child process only

    made = converter(loaded, options, samples, flags)
    try:
        return (
            _with_float_ops(made, flags)
            if flags.float_ops and options.mode.needs_kind == "int8"
            else bytes(made.convert())
        )
    except (ConverterError, RuntimeError, ValueError) as exc:
        raise refusal(f"{options.model}, signature {loaded.key!r}", options.quantize, str(exc)) from exc


def _with_float_ops(made: Any, flags: CompatFlags) -> bytes:
    """Return an int8 model in which the ops that an older runtime lacks in int8 stay float."""
    from tensorflow.lite.python.convert import mlir_quantize  # noqa: PLC0415  # child process only

    made._experimental_calibrate_only = True  # noqa: SLF001  # the converter itself takes no list of ops
    quantized = mlir_quantize(
        made.convert(),
        input_data_type=made.inference_input_type,
        output_data_type=made.inference_output_type,
        denylisted_ops=list(flags.float_ops),
        disable_per_channel_for_dense_layers=flags.per_tensor_dense,
    )
    return bytes(quantized)


def converter(
    loaded: Loaded,
    options: Options,
    samples: Samples | None,
    flags: CompatFlags,
) -> Any:
    """Return the tf.lite.TFLiteConverter that `convert` uses, ready to convert; parameters as there."""
    made = _of(loaded)
    # Recurrent layers reserve a list for a batch that the graph inside leaves open, though the signature is pinned.
    # For any batch but 1 this makes a model that answers wrongly, without a word.
    made._experimental_default_to_single_batch_in_tensor_list_ops = loaded.batch_of_one  # noqa: SLF001  # no public name
    _configure(made, options, samples, flags)
    return made


def _of(loaded: Loaded) -> Any:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    if loaded.pinned is None:
        return tf.lite.TFLiteConverter.from_concrete_functions([loaded.concrete], loaded.root)
    return tf.lite.TFLiteConverter.from_saved_model(str(loaded.pinned), signature_keys=[loaded.key])


def _configure(made: Any, options: Options, samples: Samples | None, flags: CompatFlags) -> None:
    import tensorflow as tf  # noqa: PLC0415  # child process only

    mode = options.mode
    # All or none: which of them may stay is checked where the file is read.
    made.allow_custom_ops = bool(options.allow_custom)
    made.target_spec.supported_ops = [*_ops(mode), *([tf.lite.OpsSet.SELECT_TF_OPS] if options.allow_flex else [])]
    if not (mode.needs_kind or mode.needs_constants):
        return
    made.optimizations = [tf.lite.Optimize.DEFAULT]
    made._experimental_disable_per_channel_quantization_for_dense_layers = flags.per_tensor_dense  # noqa: SLF001  # no public name
    if "float16" in mode.needs_constants:
        made.target_spec.supported_types = [tf.float16]
    if mode.calibrated and samples is not None:
        made.representative_dataset = lambda: _representative(samples)
    if mode.integer:
        made.inference_input_type = made.inference_output_type = tf.as_dtype(mode.integer)


def _ops(mode: Mode) -> list[Any]:
    """Return the op sets of a mode: integers alone, or with the float ops of layers that are kept float."""
    import tensorflow as tf  # noqa: PLC0415  # child process only

    sets = tf.lite.OpsSet
    integers = {
        "int8": [sets.TFLITE_BUILTINS_INT8],
        "int16": [sets.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8],
    }
    made = integers.get(mode.needs_kind, [sets.TFLITE_BUILTINS])
    return [*made, sets.TFLITE_BUILTINS] if mode.searched else made


def _representative(samples: Samples) -> Iterator[dict[str, Array]]:
    for i in range(samples.count):
        yield {name: np.ascontiguousarray(array[i]) for name, array in samples.arrays.items()}


def _missing(text: str) -> dict[str, list[str]]:
    """Return kind (`TF Select`, `Custom`) → names of the ops that the converter says TFLite lacks."""
    return {kind: [name.strip() for name in names.split(",")] for kind, names in _MISSING.findall(text)}


def refusal(where: str, quantize: str, text: str) -> BadDataError:
    """Return the error for what the converter said: the ops it lacks, or its first error line."""
    for sign, what, advice in _KNOWN:
        if sign in text:
            return BadDataError(where, f"cannot be converted: {what}", advice)
    missing = _missing(text)
    if missing:
        listed = "; ".join(f"{kind} ops {', '.join(names)}" for kind, names in missing.items())
        return BadDataError(where, f"cannot be converted: {listed} are not in TFLite", _replace(missing))
    first = next(iter(_ERROR.findall(text)), text.strip().splitlines()[0] if text.strip() else "no reason given")
    advice = "" if quantize == "none" else _OTHER
    return BadDataError(where, f"cannot be converted with --quantize {quantize}: {first}", advice)


def _replace(missing: Mapping[str, list[str]]) -> str:
    """Return what to do about ops that TFLite lacks: a flag keeps them, but makes no runtime have them."""
    if _FLEX in missing:
        return truth.NO_FLEX
    flags = " ".join(f"--allow-custom {name}" for name in missing[_CUSTOM])
    return f"replace them in the model; {flags} lets them stay, for a runtime that registers them"
