"""`edged bench`: load against a device, and what became of it."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from edged import arguments
from edged.bench import ask, compare, document, ledger, options, output, table, verdict
from edged.bench.device import DeviceTarget
from edged.bench.document import Doc
from edged.bench.plan import Case, matrix
from edged.bench.session import Session, result
from edged.client.api import DEFAULT_USER
from edged.client.connection import Requester, requester
from edged.client.options import add_broker_options, broker_options
from edged.commands._bench_told import Ticker
from edged.commands.progress import Progress
from edged.errors import BadDataError, ExitCode, UsageError

HELP = "load a device, and tell its latencies, its knee and where the time goes"
EPILOG = """examples:
  edged bench --device press-07 --model har --rate 200 --duration 30s
  edged bench --device press-07 --model har --ramp 50:1000:50 --arrivals poisson -o har
  edged bench --device press-07 --model har --find-knee --p99-ms 20
  edged bench --device press-07 --model har --closed --concurrency 1,4,16 --qos 0,1
  edged bench --device press-07 --model har --every 10s
  edged bench --device press-07 --model har --rate 70 --duration 30m --pid $(pgrep -of 'edged run') -o soak
  edged bench --loopback -c edged.yaml --model har --rate 500
  edged bench --loopback --bundle bundles/har --max-p99-ms 10
  edged bench --compare before after -o difference
An open loop (--rate) sends by its schedule and counts from the time the schedule says, so a stall cannot hide; a
closed loop (--closed) sends when an answer came, so it finds the saturation and hides stalls. A request without any
answer half a second after its deadline is missing, and counts with that time in the percentiles.
columns: n latencies counted, asked/s requests sent, ok/s answers without an error, errors by code, missing requests
without any answer, P50 to max in milliseconds; * of fewer samples than that percentile needs.
The knee is the highest rate tried that kept its P99 within --p99-ms, every request answered without an error.
A model that keeps state is asked as one user: every request is a step of the state c/USER (of --user), with random
values or --input again, so they run one after the other; use a login that nobody else works with.
QoS 2 is kept up to the broker: an edged device takes requests and answers at QoS 1; not every broker takes it.
exit codes:
  0 all right, 65 answers are missing or doubled, --max-p99-ms is exceeded, there is no knee, or of two runs to compare
  no ratio can be told, 69 the target is away, 130 interrupted"""

_INTERRUPTED = 130
# A device of this process measures its delegates first.
_OWN_DEVICE_S = 120.0
# A retained status comes at once; nobody need have one who is told what to send.
_STATE_S = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--device", help="name of the device")
    parser.add_argument("--model", action="append", default=[], help="name of the model on it; can be repeated")
    parser.add_argument("--user", help=f"level of the reply topics (the login, else {DEFAULT_USER})")
    parser.add_argument(
        "--pid", type=arguments.whole, metavar="N", help="the device's process here: memory, threads, descriptors"
    )
    options.add(parser)
    own = parser.add_argument_group("a device of its own")
    own.add_argument(
        "--loopback", action="store_true", help="run the device in this process, without sockets or a broker"
    )
    own.add_argument("-c", "--config", type=Path, metavar="FILE", help="its configuration (YAML)")
    own.add_argument("--bundle", type=Path, metavar="BUNDLE", help="or the bundle it serves")
    told = parser.add_argument_group("result")
    told.add_argument("--max-p99-ms", type=options.rate, metavar="X", help="exit with 65 where a P99 is over it")
    told.add_argument("--json", action="store_true", help="print one JSON document")
    told.add_argument("-o", "--output", type=Path, metavar="DIR|FILE.json", help="write the JSON and a page with plots")
    told.add_argument(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("A", "B"),
        help="ratios B / A of two runs (files or folders of -o) that were asked the same; nothing else is run",
    )
    add_broker_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run it all, and print. Raises an EdgedError where the options are wrong or the target is away."""
    if args.compare is not None:
        return _compare(args)
    if args.output is not None:
        output.check(args.output)
    loads, span = options.loads(args), options.span(args)
    stop = threading.Event()
    with _interruptible(stop), _target(args) as (target, models, patience_s), _ticker() as ticker:
        session = Session(target, ledger.numbers(), stop, ticker.watch, args.pid)
        wish = options.wish(args, models)
        session.await_state(wish.models, patience_s if wish.declared else _STATE_S)
        cases = matrix(ask.questions(wish, target), loads, span)
        session.prepare(cases, patience_s)
        ticker.cases = 0 if args.find_knee else len(cases)
        found = _measured(args, session, cases)
    return _tell(args, found)


def _measured(args: argparse.Namespace, session: Session, cases: list[Case]) -> Doc:
    if args.find_knee:
        runs, knee = session.knee(cases[0], args.p99_ms)
        return result(session, sys.argv[1:], runs, knee)
    return result(session, sys.argv[1:], session.runs(cases))


@contextlib.contextmanager
def _target(args: argparse.Namespace) -> Iterator[tuple[DeviceTarget, list[str], float]]:
    """The target, connected; the models to ask for where none is named; how long it may take to be ready."""
    if not args.loopback:
        if not args.device or not args.model:
            raise UsageError(
                "edged bench", "--device and --model say who is asked", "or --loopback with -c or --bundle"
            )
        if args.config or args.bundle:
            raise UsageError("-c" if args.config else "--bundle", "is of a device in this process", "add --loopback")
        broker = requester(args.broker, broker_options(args))
        with _connected(args, broker, args.device) as target:
            yield target, [], args.connect_timeout
        return
    if (args.config is None) == (args.bundle is None):
        raise UsageError("--loopback", "needs one configuration or one bundle", "either -c FILE or --bundle BUNDLE")
    from edged.bench.inprocess import InProcess, from_bundle, from_file  # noqa: PLC0415  # a daemon and its runtime

    config = from_bundle(args.bundle) if args.bundle else from_file(args.config)
    with InProcess(config) as device, _connected(args, device.broker, device.device) as target:
        yield target, [model.name for model in config.models], _OWN_DEVICE_S


@contextlib.contextmanager
def _connected(args: argparse.Namespace, broker: Requester, device: str) -> Iterator[DeviceTarget]:
    target = DeviceTarget(broker, device, user=args.user, protocol=args.protocol, qos=args.qos)
    try:
        target.start(args.connect_timeout)
        yield target
    finally:
        target.stop()


@contextlib.contextmanager
def _interruptible(stop: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C end the run in order; the second one ends the program."""
    before = signal.getsignal(signal.SIGINT)

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _ticker() -> Iterator[Ticker]:
    """Progress, where somebody sees it."""
    ticker = Ticker(Progress(sys.stderr))
    ticker.start()
    try:
        yield ticker
    finally:
        ticker.done()


def _tell(args: argparse.Namespace, found: Doc) -> int:
    wrong = verdict.failures(found, args.max_p99_ms)
    found |= {"max_p99_ms": args.max_p99_ms, "failures": wrong}
    sys.stdout.write(json.dumps(found) + "\n" if args.json else table.text(found))
    if args.output is not None:
        files = output.write(args.output, found)
        sys.stdout.write("" if args.json else f"\nwritten: {', '.join(map(str, files))}\n")
    if found["interrupted"]:
        sys.stderr.write("edged: interrupted; what was measured until then is told\n")
        return _INTERRUPTED
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise BadDataError(table.where(found), wrong[0] + more)
    return ExitCode.OK


def _compare(args: argparse.Namespace) -> int:
    if args.output is not None:
        output.check(args.output, *args.compare)
    first, second = map(document.load, args.compare)
    if args.json:
        sys.stdout.write(json.dumps(compare.document(first, second)) + "\n")
    else:
        sys.stdout.write(table.comparison(first, second))
    if args.output is not None:
        files = output.write_comparison(args.output, first, second)
        sys.stdout.write("" if args.json else f"\nwritten: {', '.join(map(str, files))}\n")
    if not compare.judged(first, second):
        raise BadDataError("--compare", compare.unjudged(first, second), "the remarks say more")
    return ExitCode.OK
