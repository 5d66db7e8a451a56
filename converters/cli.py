"""`edged convert`: a SavedModel in, a verified bundle out. Importing this module imports no TensorFlow."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from converters.options import MODES, Options
from edged.errors import ExitCode, UnavailableError

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
  FILE.npz          one array for every input, by the input's name: [count, …]; any name where there is one input
  FILE.npy          one array, for a model with one input
  DIR               images, made into the input as --preprocess says
  module:function   a function that yields arrays (one input), or mappings of input name to array

--preprocess and --postprocess
  `edged sample preprocess` and `edged sample postprocess` print commented files with every key.
  With --labels and no --postprocess, JSON and CBOR answers list the best 5 classes (or fewer, where there are fewer).

The bundle is written only when the converted model agrees with the SavedModel, on --eval, else on every fifth
calibration sample. A gate that fails ends with exit code 65 and leaves no bundle.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("model", metavar="SAVED_MODEL", type=Path, help="directory that holds saved_model.pb")
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
    parser.add_argument("--json", action="store_true", help="print the facts as one JSON document")
    parser.add_argument("--verbose", action="store_true", help="show every stage, and what TensorFlow prints")


def _configure_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--quantize", choices=tuple(MODES), default="none", help="default: %(default)s")
    group.add_argument("--io", choices=("float", "quantized"), default="float", help="what a client sends and gets")
    group.add_argument("--signature", default="", metavar="KEY", help="default: serving_default, or the only one")
    group.add_argument("--tags", default="", metavar="T", help="tag set, with commas (default: serve)")
    group.add_argument("--batch", type=_at_least_one, default=1, help="for a free first dimension (default: 1)")
    group.add_argument("--shape", type=_shape, action="append", default=[], metavar="NAME=1,96,64", help="of one input")


def _configure_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--calibration", default="", metavar="FILE|DIR|module:function", help="for int8 and int16x8")
    group.add_argument("--eval", default="", metavar="FILE", help=".npz as for --calibration; key y: class numbers")
    group.add_argument(
        "--labels", default="", metavar="FILE", help="class names, one a line: answers then list the best 5"
    )
    group.add_argument(
        "--preprocess", default="", metavar="FILE", help="YAML: how an image becomes the input; see below"
    )
    group.add_argument("--postprocess", default="", metavar="FILE", help="YAML: softmax, top_k, threshold (below)")
    group.add_argument("--min-agreement", type=_share, metavar="X", help="least argmax agreement of a classifier")
    group.add_argument("--max-error", type=_not_negative, metavar="X", help="largest absolute error of any output")
    group.add_argument("--golden", type=_at_least_one, default=8, metavar="N", help="golden samples (default: 8)")


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
    finally:
        progress.done()
    sys.stdout.write((show.as_json(result) if args.json else show.as_text(result)) + "\n")
    if not args.json:
        sys.stdout.flush()
        for warning in result.warnings:
            sys.stderr.write(f"warning: {warning}\n")
    return int(ExitCode.OK)
