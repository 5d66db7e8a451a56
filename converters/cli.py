"""`edged convert`: a SavedModel in, a verified bundle out. Importing this module imports no TensorFlow."""

from __future__ import annotations

import argparse
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from converters.options import AUTO, MODES, Options
from edged.errors import ExitCode, UnavailableError

if TYPE_CHECKING:
    from converters.report import Report

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

HELP = "convert a TensorFlow SavedModel into a bundle"

EPILOG = """\
examples:
  edged convert har_savedmodel -o bundles/har --name har --version 1
  edged convert har_savedmodel -o har.tar --name har --version 2 --quantize int8 \\
      --calibration train.npz --eval test.npz --labels classes.txt
  edged sample preprocess > image.yaml
  edged convert detector -o bundles/det --name det --version 1 --quantize int8 \\
      --calibration photos/ --preprocess image.yaml
  edged convert audio -o bundles/audio --name audio --version 1 --shape samples=1,16000

calibration data
  FILE.npz          one array for every input, by its name: [count, …]; any name where there is one input
                    (`edged record` writes one from live MQTT traffic)
  FILE.npy          one array, for a model with one input
  FILE.csv[.gz]     columns called like the inputs, or in order for one input; label column y. A column for each
                    value: a row is a sample. Fewer: rows are consecutive steps, cut into windows
  DIR               images, made into the input as --preprocess says
  module:function   a function that yields arrays (one input), or mappings of input name to array

quantization
  none, float16     float arithmetic; float16 halves the size
  dynamic           int8 weights, float arithmetic; needs no data
  int8              whole numbers throughout: what most accelerators want. Needs --calibration
  mixed             int8, but for the few layers that cost the accuracy: they are searched for and stay float
  int16x8           16-bit activations, int8 weights: accurate, and slow almost everywhere
  auto              all of these (mixed where int8 misses a gate); the smallest that passes ships, and of near sizes
                    the one that more accelerators take

targets
  --target NAME, repeated: a runtime, with a release if you like (tflite-runtime, ai-edge-litert==2.1.0), or a delegate
  (edgetpu, ethos-u, …). A runtime that is named must pass. Without any: the newest of every runtime, one that passes
  is enough, the others are warnings. Op versions are checked against a table measured from the runtimes; where a
  runtime lacks one, the model is converted again with settings that it takes, if there are any.

  A delegate that is named must take some of the model.

  --allow-flex and --allow-custom let ops stay that TFLite lacks. A runtime here must still run them: the Python
  packages bring a few custom ops along, and no Flex delegate.

gates
  Each output is compared with the SavedModel on every runtime: cosine; argmax agreement of classes; F1 of scores in 0
  to 1 (--threshold); with labels in --eval the loss of accuracy, or the growth of the mean absolute error.

--preprocess and --postprocess
  `edged sample preprocess` and `edged sample postprocess` print commented files with every key.
  With --labels and no --postprocess, JSON and CBOR answers list the best 5 classes (or fewer, where there are fewer).

The bundle is written only when the converted model agrees with the SavedModel, on --eval, else on every fifth
calibration sample. A gate that fails ends with exit code 65 and leaves no bundle, but a report that says why:
BUNDLE-refused.html, or --report. A bundle carries its own report.html and report.json.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a SavedModel, a directory of its versions, or a .keras or .h5 file"
    )
    needed = parser.add_argument_group("the bundle")
    needed.add_argument(
        "-o",
        "--output",
        metavar="BUNDLE",
        type=Path,
        required=True,
        help="a directory, or FILE.tar; made with the directories above it",
    )
    needed.add_argument("--name", required=True, help="the model's name")
    needed.add_argument("--version", type=_at_least_one, required=True, metavar="V", help="whole number from 1")
    needed.add_argument("--force", action="store_true", help="replace the bundle that is there")
    _configure_model(parser.add_argument_group("the model"))
    _configure_data(parser.add_argument_group("data and gates"))
    _configure_run(parser.add_argument_group("the run"))
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON document")
    parser.add_argument("--verbose", action="store_true", help="show every stage, and what TensorFlow prints")


def _configure_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--quantize", choices=(*MODES, AUTO), default="none", help="default: %(default)s; auto tries all, see below"
    )
    group.add_argument("--io", choices=("float", "quantized"), default="float", help="what a client sends and gets")
    group.add_argument("--signature", default="", metavar="KEY", help="default: serving_default, or the only one")
    group.add_argument("--tags", default="", metavar="T", help="tag set, with commas (default: serve)")
    batch = group.add_mutually_exclusive_group()
    batch.add_argument("--batch", type=_at_least_one, default=1, help="for an open first dimension (default: 1)")
    batch.add_argument("--dynamic-batch", action="store_true", help="leave it open; the bundle serves a batch of 1")
    group.add_argument("--shape", type=_shape, action="append", default=[], metavar="NAME=1,96,64", help="of one input")
    group.add_argument(
        "--target", action="append", default=[], metavar="NAME", help="a runtime or delegate of the fleet (below)"
    )
    group.add_argument("--allow-flex", action="store_true", help="let ops of TensorFlow stay, for a runtime with Flex")
    group.add_argument("--allow-custom", action="append", default=[], metavar="OP", help="let this custom op stay")


def _configure_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--calibration", default="", metavar="FILE|DIR|module:function", help="for int8, mixed, int16x8, auto"
    )
    group.add_argument(
        "--eval", default="", metavar="FILE", help="as for --calibration; with y: class numbers, names or targets"
    )
    group.add_argument(
        "--labels", default="", metavar="FILE", help="class names, one a line: answers then list the best 5"
    )
    group.add_argument(
        "--preprocess", default="", metavar="FILE", help="YAML: how an image becomes the input; see below"
    )
    group.add_argument("--postprocess", default="", metavar="FILE", help="YAML: softmax, top_k, threshold (below)")
    group.add_argument(
        "--min-agreement", type=_share, metavar="X", help="least argmax agreement of classes, or F1 of scores"
    )
    group.add_argument("--max-error", type=_not_negative, metavar="X", help="largest absolute error of any output")
    group.add_argument(
        "--max-accuracy-loss",
        type=_share,
        default=0.01,
        metavar="X",
        help="with class numbers in --eval (default: .01)",
    )
    group.add_argument(
        "--max-mae-growth", type=_not_negative, default=0.05, metavar="X", help="with targets in --eval (default: .05)"
    )
    group.add_argument("--threshold", type=_share, default=0.5, metavar="X", help="of scores, for F1 (default: .5)")
    group.add_argument(
        "--search-budget", type=_at_least_one, default=60, metavar="N", help="conversions mixed may try (default: 60)"
    )
    group.add_argument("--golden", type=_at_least_one, default=8, metavar="N", help="golden samples (default: 8)")


def _configure_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--report", default="", metavar="FILE.html", help="keep the report here as well, with FILE.json")
    group.add_argument(
        "--time-limit", type=_seconds, default=3600.0, metavar="S", help="of each child process (default: 3600)"
    )
    group.add_argument(
        "--memory-limit",
        type=_bytes,
        default=0,
        metavar="SIZE",
        help="of each, e.g. 8GiB (default: 90 %% of what is free)",
    )


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        msg = f"must be 1 or more, got {value}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        msg = f"must be 0 to 1, got {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        msg = f"must be 0 or more, got {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        msg = f"must be more than 0, got {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(|KiB|MiB|GiB)", text.strip())
    if match is None or not int(match[1]):
        msg = f"must read like 512MiB or 8GiB, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return int(match[1]) * _UNITS[match[2]]


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError:
        shape = (0,)
    if not name or not equals or any(size < 1 for size in shape):
        msg = f"must read NAME=1,96,64, got {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return name, shape


def options(args: argparse.Namespace) -> Options:
    """Return the parsed arguments as Options, with absolute paths."""
    return Options(
        model=args.model.absolute(),
        output=args.output.absolute(),
        name=args.name,
        version=args.version,
        quantize=args.quantize,
        calibration=args.calibration,
        evaluation=args.eval,
        labels=args.labels,
        signature=args.signature,
        tags=args.tags,
        io=args.io,
        batch=args.batch,
        shapes=dict(args.shape),
        preprocess=args.preprocess,
        postprocess=args.postprocess,
        min_agreement=args.min_agreement,
        max_error=args.max_error,
        max_accuracy_loss=args.max_accuracy_loss,
        max_mae_growth=args.max_mae_growth,
        threshold=args.threshold,
        targets=tuple(args.target),
        dynamic_batch=args.dynamic_batch,
        allow_flex=args.allow_flex,
        allow_custom=tuple(args.allow_custom),
        search_budget=args.search_budget,
        time_limit_s=args.time_limit,
        memory_limit=args.memory_limit,
        report=args.report,
        golden=args.golden,
        force=args.force,
        verbose=args.verbose,
    )


def run(args: argparse.Namespace) -> int:
    """Convert; print what was made. Raises EdgedError."""
    from converters import pipeline, show  # noqa: PLC0415  # numpy and more, not needed to print help

    if find_spec("tensorflow") is None:
        raise UnavailableError("edged convert", "TensorFlow is not installed", "pip install 'edged[convert]'")
    progress = show.Progress(sys.stderr, plain=args.verbose)
    try:
        result = pipeline.convert(options(args), progress.stage, sys.stderr.write)
    except (pipeline.RefusedError, pipeline.CrashedError) as exc:
        progress.done()
        _tell_refusal(exc.report, as_json=args.json)
        raise
    finally:
        progress.done()
    sys.stdout.write((show.as_json(result.report, result) if args.json else show.as_text(result)) + "\n")
    if not args.json:
        sys.stdout.flush()
        for warning in (*result.report.warnings, *result.report.shown.notes):
            sys.stderr.write(f"warning: {warning}\n")
    return int(ExitCode.OK)


def _tell_refusal(report: Report, *, as_json: bool) -> None:
    """Print what there is to know beside the one line of the error."""
    from converters import show  # noqa: PLC0415  # as in run

    if as_json:
        sys.stdout.write(show.as_json(report, None) + "\n")
        return
    told = [show.attempts(report)] if len(report.attempts) > 1 else []
    told += ["\n".join(show.mixed(attempt.mixed)) for attempt in report.attempts if attempt.mixed]
    told += [show.layers(report)]
    sys.stdout.write("".join(f"{text}\n\n" for text in told if text))
    sys.stdout.flush()
