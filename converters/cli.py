"""`edged convert`: a model in, a verified bundle out. Importing this module imports no TensorFlow and no numpy."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters import clihelp, disk, ending
from converters.options import AUTO, MODES, Options
from edged import arguments
from edged.commands.progress import Progress
from edged.errors import ExitCode, UnavailableError

if TYPE_CHECKING:
    from converters.pipeline import Result
    from converters.report import Report

HELP = "convert a TensorFlow SavedModel or a Keras file into a bundle"
EPILOG = clihelp.epilog()

_SAMPLES = "FILE|DIR|module:function"
_CALIBRATED = ", ".join(name for name, mode in MODES.items() if mode.calibrated)
_INTEGER = " or ".join(name for name, mode in MODES.items() if mode.integer)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments. Each has the name of its field of Options, and that field's default."""
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="a SavedModel, a directory of its versions, or a .keras or .h5 file"
    )
    _configure_bundle(parser.add_argument_group("the bundle"))
    _configure_model(parser.add_argument_group("the model"))
    _configure_ops(parser.add_argument_group("the fleet"))
    _configure_data(parser.add_argument_group("the data"))
    _configure_gates(parser.add_argument_group("the gates"))
    _configure_run(parser.add_argument_group("the run"))
    parser.set_defaults(**_defaults())


def _defaults() -> dict[str, Any]:
    """Return what Options itself takes where nothing is given; a list where an option can be repeated."""
    fields = dataclasses.fields(Options)
    found = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    made = {field.name: field.default_factory() for field in fields if field.default_factory is not dataclasses.MISSING}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in (found | made).items()}


def _configure_bundle(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-o",
        "--output",
        metavar="BUNDLE",
        type=Path,
        required=True,
        help="a directory, or FILE.tar; made with the directories above it",
    )
    group.add_argument("--name", required=True, help="the model's name: a level of its MQTT topics, so no /, + or #")
    group.add_argument(
        "--version", type=arguments.whole, required=True, metavar="V", help="the bundle's: a whole number from 1"
    )
    group.add_argument("--labels", metavar="FILE", help="class names, one a line: answers then list the best 5")
    group.add_argument(
        "--preprocess", metavar="FILE", help="YAML: how an image becomes the input (`edged sample preprocess`)"
    )
    group.add_argument(
        "--postprocess", metavar="FILE", help="YAML: softmax, top_k, threshold (`edged sample postprocess`)"
    )
    group.add_argument(
        "--golden",
        type=arguments.whole,
        metavar="N",
        help="golden samples in it: a device is ready only when it answers them as here (default: %(default)s)",
    )
    group.add_argument("--force", action="store_true", help="replace the bundle that is there")


def _configure_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--quantize",
        choices=(*MODES, AUTO),
        metavar="MODE",
        help=f"{', '.join(MODES)} or {AUTO} (default: %(default)s)",
    )
    group.add_argument(
        "--io",
        choices=("float", "quantized"),
        help=f"what a client sends and gets: real numbers (float), or the model's own integers (quantized; needs "
        f"--quantize {_INTEGER}) (default: %(default)s)",
    )
    group.add_argument(
        "--signature", metavar="KEY", help="which to convert (default: serving_default, or the only one)"
    )
    group.add_argument(
        "--tags", metavar="A,B", help="which graph of the SavedModel; a comma alone is the empty set (default: serve)"
    )
    batch = group.add_mutually_exclusive_group()
    batch.add_argument(
        "--batch", type=arguments.whole, metavar="N", help="size of an open first dimension (default: %(default)s)"
    )
    batch.add_argument("--dynamic-batch", action="store_true", help="leave it open; the bundle serves a batch of 1")
    group.add_argument(
        "--shape",
        dest="shapes",
        type=arguments.named_shape,
        action=arguments.ByName,
        metavar="NAME=1,96,64",
        help="the whole shape of an input, batch included; needed where another dimension than the batch is open; "
        "can be repeated",
    )


def _configure_ops(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--target",
        dest="targets",
        action="append",
        metavar="NAME",
        help="a runtime (RUNTIME==RELEASE) or delegate that the devices have, listed below; can be repeated",
    )
    group.add_argument(
        "--allow-flex",
        action="store_true",
        help="keep ops of TensorFlow itself; needs a runtime built with them, see below",
    )
    group.add_argument(
        "--allow-custom", action="append", metavar="OP", help="keep this custom op; can be repeated; see below"
    )


def _configure_data(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--calibration", metavar=_SAMPLES, help=f"real samples, for {_CALIBRATED} and {AUTO}; see below")
    group.add_argument(
        "--eval",
        dest="evaluation",
        metavar=_SAMPLES,
        help="samples for the comparison, with labels or without; see below",
    )


def _configure_gates(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--min-agreement",
        type=arguments.share,
        metavar="X",
        help="least argmax agreement of class scores, and least F1 (default: the mode's, see below)",
    )
    group.add_argument(
        "--max-error",
        type=arguments.amount,
        metavar="X",
        help="largest absolute error of any output, in its units (default: no bound)",
    )
    group.add_argument(
        "--max-accuracy-loss",
        type=arguments.share,
        metavar="X",
        help="with classes in --eval: the share of samples that may be lost (default: %(default)s)",
    )
    group.add_argument(
        "--max-mae-growth",
        type=arguments.amount,
        metavar="X",
        help="with targets in --eval: the share by which the mean absolute error may grow (default: %(default)s)",
    )
    group.add_argument(
        "--threshold",
        type=arguments.share,
        metavar="X",
        help="from which a score counts, for F1 (default: %(default)s)",
    )


def _configure_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--search-budget", type=arguments.whole, metavar="N", help="conversions mixed may try (default: %(default)s)"
    )
    group.add_argument(
        "--time-limit",
        dest="time_limit_s",
        type=arguments.seconds,
        metavar="S",
        help="seconds that each child process may take (default: %(default)g)",
    )
    group.add_argument(
        "--memory-limit",
        type=arguments.size,
        metavar="SIZE",
        help="memory of each child process, for example 8GB (default: 90 %% of what is free)",
    )
    group.add_argument("--report", metavar="FILE.html", help="write the report here, and its facts to FILE.json")
    group.add_argument("--json", action="store_true", help="print the facts as one JSON document")
    group.add_argument("--verbose", action="store_true", help="show every stage, and what TensorFlow prints")


def options(args: argparse.Namespace) -> Options:
    """Return the parsed arguments as Options, with absolute paths."""
    return Options(**{field.name: _value(getattr(args, field.name)) for field in dataclasses.fields(Options)})


def _value(given: Any) -> Any:
    if isinstance(given, Path):
        return given.absolute()
    return tuple(given) if isinstance(given, list) else given


def run(args: argparse.Namespace) -> int:
    """Convert; print what was made. Raises EdgedError, and SystemExit when SIGTERM or SIGHUP ends it."""
    with ending.by_signal():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from converters import pipeline  # noqa: PLC0415  # numpy and more, not needed to print help

    if find_spec("tensorflow") is None:
        raise UnavailableError("edged convert", "TensorFlow is not installed", "pip install 'edged[convert]'")
    progress = Progress(sys.stderr, lines=args.verbose)
    try:
        result = pipeline.convert(options(args), lambda stage: progress.show(f"{stage} …"), sys.stderr.write)
    except (pipeline.RefusedError, pipeline.CrashedError) as exc:
        progress.done()
        # What ends the command is the refusal: its line comes, whatever can be printed before.
        with suppress(OSError):
            _tell_refusal(exc.report, as_json=args.json)
        raise
    finally:
        progress.done()
    if result.unkept:
        sys.stderr.write(f"warning: {result.path} is written, but its report is not kept: {result.unkept}\n")
    with disk.room("standard output", f"the bundle is written: {result.path}"):
        _tell(result, as_json=args.json)
    return int(ExitCode.OK)


def _tell(result: Result, *, as_json: bool) -> None:
    from converters import show  # noqa: PLC0415  # as in run

    sys.stdout.write((show.as_json(result.report, result) if as_json else show.as_text(result)) + "\n")
    sys.stdout.flush()
    if not as_json:
        for warning in (*result.report.warnings, *result.report.shown.notes):
            sys.stderr.write(f"warning: {warning}\n")


def _tell_refusal(report: Report, *, as_json: bool) -> None:
    """Print what there is to know beside the one line of the error."""
    from converters import show  # noqa: PLC0415  # as in run

    if as_json:
        sys.stdout.write(show.as_json(report, None) + "\n")
    else:
        sys.stdout.write(show.refusal(report))
    sys.stdout.flush()
