"""`edged demo`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from edged.errors import ExitCode, InternalError, UsageError

if TYPE_CHECKING:
    from converters.demo.scene import Scene
    from converters.demo.table import Screen
    from converters.demo.verdict import Figures

HELP = "train, convert, serve and measure on real sensor data, on this machine"
EPILOG = """\
examples:
  edged demo                 about two minutes, ends with `demo: PASS` and exit 0 when all is right
  edged demo --keep          leaves broker, daemon and slow sensors running to play with, until Ctrl-C
  edged demo --json          the figures as one JSON document
  edged demo --out demo-out  keeps the model, the bundle, the configuration and the logs
"""
WINDOWS = 1000
DURATION_S = 36.0
MAX_DURATION_S = 3600.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--broker", choices=("auto", "mosquitto", "iotcore"), default="auto", help="which to embed")
    parser.add_argument("--keep", action="store_true", help="go on at the sensors' real pace until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep what is made in this new or empty directory")
    parser.add_argument(
        "--windows", type=int, default=WINDOWS, metavar="N",
        help=f"sensor windows, and requests of each kind, at least (default {WINDOWS})",
    )  # fmt: skip
    parser.add_argument(
        "--duration", type=float, default=DURATION_S, metavar="S",
        help=f"seconds to spread them over (default {DURATION_S:.0f})",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 when everything was right, 70 with the reason when not."""
    from converters.demo import prepare  # noqa: PLC0415  # the other commands' start-up does not pay for it

    if args.windows < 1 or not 0 < args.duration <= MAX_DURATION_S:
        raise UsageError("edged demo", f"--windows must be positive, --duration too and at most {MAX_DURATION_S:.0f} s")
    prepare.check_installed()
    signal.signal(signal.SIGTERM, _terminated)
    try:
        with _workplace(args.out) as directory:
            code = _guarded(args, directory)
    except _TerminatedError:
        sys.stderr.write("demo: ended by SIGTERM; everything it started is stopped\n")
        raise
    if args.keep:
        files = "its files are removed (--out DIR keeps them)" if args.out is None else f"its files are in {directory}"
        _screen(args).say(f"demo: ended: broker, daemon and sensors are stopped, {files}")
    return code


def _guarded(args: argparse.Namespace, directory: Path) -> int:
    try:
        return _play(args, directory)
    except InternalError as exc:
        sys.stderr.write(f"demo: FAIL: {exc}\n")
        if args.json:
            sys.stdout.write(json.dumps({"verdict": "FAIL", "faults": [str(exc)]}, indent=2) + "\n")
        return ExitCode.INTERNAL


class _TerminatedError(SystemExit):
    """SIGTERM came."""


def _terminated(_number: int, _frame: FrameType | None) -> NoReturn:
    # Unwinds like Ctrl-C: every child is stopped on the way out.
    raise _TerminatedError(128 + signal.SIGTERM)


@contextmanager
def _workplace(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="edged-demo-") as directory:
            yield Path(directory)
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(str(out), "not an empty directory", "name a new one")
    out.mkdir(parents=True, exist_ok=True)
    yield out.absolute()


def _play(args: argparse.Namespace, directory: Path) -> int:
    from converters.demo import prepare, scene  # noqa: PLC0415
    from converters.demo.children import Children  # noqa: PLC0415
    from edged.broker import EmbeddedBroker  # noqa: PLC0415

    screen = _screen(args)
    size = scene.Size(args.windows, args.duration)
    with Children(directory) as children:
        screen.say("demo: training on 40 real recordings (TensorFlow, in a child process)")
        trained = prepare.train(children, directory)
        screen.say("demo: converting with `edged convert --quantize int8`")
        prepared = prepare.convert(children, directory, trained)
        # Children of its own: they end before their broker does, so the daemon can say `stopped`.
        with EmbeddedBroker(args.broker) as broker, Children(directory) as serving:
            screen.say(f"demo: starting {broker.kind} and `edged run`")
            with scene.opened(serving, broker, prepared, size, directory) as opened:
                code = _conclude(scene.measure(opened, size, screen), screen, as_json=args.json)
                if args.keep:
                    _keep(opened, screen, directory, removed=args.out is None)
                return code


def _screen(args: argparse.Namespace) -> Screen:
    from converters.demo.table import Screen  # noqa: PLC0415

    return Screen(sys.stderr if args.json else sys.stdout)


def _conclude(figures: Figures, screen: Screen, *, as_json: bool) -> int:
    """Show the final table and the verdict; return the exit code."""
    from converters.demo import verdict  # noqa: PLC0415

    screen.final(figures)
    if as_json:
        sys.stdout.write(json.dumps(verdict.as_json(figures), indent=2) + "\n")
        sys.stdout.flush()
    found = verdict.faults(figures)
    screen.say(f"demo: FAIL: {'; '.join(found)}" if found else f"demo: PASS: {verdict.praise(figures)}")
    return ExitCode.INTERNAL if found else ExitCode.OK


def _keep(scene: Scene, screen: Screen, directory: Path, *, removed: bool) -> None:
    """Say what can be typed now, and go on until Ctrl-C."""
    from converters.demo import keep  # noqa: PLC0415

    for line in keep.commands(scene, directory, removed=removed):
        screen.say(line)
    try:
        keep.go_on(scene)
    except KeyboardInterrupt:
        screen.say("")
