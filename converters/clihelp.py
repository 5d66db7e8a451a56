"""The words of `edged convert --help` below the options; the modes and their gates come from the table of modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from converters.options import AUTO, MODES, PREFERRED
from edged.shown import table

# As compat.delegate_names() has them, which cannot be asked without numpy.
DELEGATES = (
    "armnn", "edgetpu", "ethos_u", "gpu", "gpu_tflite", "neuron", "neutron", "npu_openvino", "qnn", "vx", "xnnpack"
)  # fmt: skip

_EPILOG = """\
examples:
  edged convert har_savedmodel -o bundles/har --name har --version 1
  edged convert har_savedmodel -o har.tar --name har --version 2 --quantize int8 \\
      --calibration train.npz --eval test.npz --labels classes.txt
  edged convert model.keras -o bundles/har --name har --version 3 --quantize auto --calibration train.npz \\
      --target ai-edge-litert==2.1.0 --target edgetpu
  edged sample preprocess > image.yaml
  edged convert detector -o bundles/det --name det --version 1 --quantize int8 \\
      --calibration photos/ --preprocess image.yaml
  edged convert audio -o bundles/audio --name audio --version 1 --shape samples=1,16000

samples, for --calibration and --eval
  FILE.npz          one array for every input, by its name: [count, …]; any name where there is one input
                    (`edged record` writes one from live MQTT traffic)
  FILE.npy          one array, for a model with one input
  FILE.csv[.gz]     columns called like the inputs, or in order for one input. With a column for each value a row is a
                    sample; with fewer, rows are consecutive steps, and cut into windows
  DIR               images, made into the input as --preprocess says
  module:function   a function that yields arrays (one input), or mappings of input name to array
  With --eval, labels may stand beside the inputs, as array or column y: class numbers, class names (with --labels), or
  the targets of a regression. Without --eval every fifth calibration sample is kept for the comparison (all, for a mode
  that needs none); with neither, the models are compared on random numbers.

--quantize, and the least that each mode must reach
{modes}
  {auto:8} tries {free}; with --calibration also {calibrated}, and {searched} where
           int8 is refused. Of what passes on most runtimes the smallest ships; of files of one size the first in
           the order {order}. Where a delegate
           needs whole numbers, name it with --target

gates
  Every output is compared with the SavedModel on every runtime that is installed here. All float outputs: the cosine
  similarity. Scores of classes: the share of rows with the same argmax (agreement), and the F1 of every class that is
  found 5 times or more, at least 0.8. Scores in 0 to 1, each of its own (frames, detections), and flags of 0 and 1: the
  F1 of what reaches --threshold. Other real numbers (boxes, a regression): the share of the variance that is kept
  (R²), of every column by itself at least 0.5. Whole numbers: the share that is equal. Where float16 cut a constant
  off: the largest error too. The bounds are those of the table, for agreement and F1 --min-agreement if it is given; on
  random samples these are gates only then. With labels in --eval also: --max-accuracy-loss, --max-mae-growth. Scores of
  classes are softmax rows, what labels in --eval or `output` in --postprocess say is so, and where nothing does an
  output of [batch, n].

--target NAME, repeated: what the fleet has
  a runtime         ai-edge-litert or tflite-runtime, with a release if you like: tflite-runtime==2.13.0. It must pass:
                    by running where it is installed, else by a table of op versions measured from 27 releases
  a delegate        {delegates}.
                    It must take some op of the model, by its documented table of ops. The names are those of the
                    device's configuration: gpu is LiteRT's WebGPU accelerator, gpu_tflite TFLite's own GPU delegate.
                    xnnpack is what serves on the CPU
  Where no runtime is named, one that is installed here and passes is enough, and what others lack is a warning. Where
  a runtime lacks an op in the version written, the model is converted again with settings that it takes, if any do.

ops that TFLite lacks
  --allow-custom OP keeps a custom op, --allow-flex the ops of TensorFlow itself (Flex), in the file. The load test then
  decides: some runtime here must run them. No device runtime that pip installs has the ops of TensorFlow, and of custom
  ops only a few: so both are of use only with a runtime that you have built with them.

--preprocess, --postprocess
  `edged sample preprocess` and `edged sample postprocess` print commented files with every key.
  With --labels and no --postprocess, JSON and CBOR answers list the best 5 classes (or fewer, where there are fewer).

The bundle is written only when every gate passes; it carries report.html and report.json. A refusal leaves no bundle,
but a report that says why: BUNDLE-refused.html, or where --report says.

exit codes:
  0   the bundle is written
  2   usage: options that make no sense, or that do not fit the model
  65  the model is refused by a gate or by every runtime, or the model or the data cannot be used
  69  TensorFlow, or every runtime, is missing
  70  the converter crashed, or reached --time-limit or --memory-limit
  78  --preprocess or --postprocess holds no valid YAML
"""


def epilog() -> str:
    """Return the text."""
    return _EPILOG.format(
        modes=table(_modes()).rstrip(),
        auto=AUTO,
        free=_listed(name for name, mode in MODES.items() if not mode.calibrated),
        calibrated=_listed(name for name, mode in MODES.items() if mode.calibrated and not mode.searched),
        searched=_listed(name for name, mode in MODES.items() if mode.searched),
        order=", ".join(PREFERRED),
        delegates=", ".join(DELEGATES),
    )


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _modes() -> Iterator[tuple[str, ...]]:
    yield "mode", "cosine", "R²", "agreed, F1", "what it makes (*: with --calibration)"
    for name, mode in MODES.items():
        yield name, f"{mode.cosine:g}", f"{mode.r2:g}", f"{mode.agreement:g}", mode.says + "*" * mode.calibrated
