"""`edged record`: samples for calibration and evaluation, from live MQTT traffic."""

from __future__ import annotations

import argparse
import math
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edged import arguments, brokerurl, filters
from edged import config as configuration
from edged.client.connection import Requester, no_connection, requester
from edged.clock import NS_PER_S, now_ns
from edged.commands._record_signals import HANGUP, Told
from edged.commands._record_told import RecordProgress, Summary
from edged.config import Config
from edged.errors import BadDataError, ExitCode, UnavailableError, UsageError
from edged.recording import npzfile, plan
from edged.recording.keep import DEFAULT_BYTES, Kept, Rule, Sample, held
from edged.recording.npzfile import Array, Facts
from edged.recording.output import Output
from edged.recording.plan import Plan, Wish
from edged.recording.recorder import Recorder
from edged.shown import plain, size
from edged.transports.base import Denied

if TYPE_CHECKING:
    from edged.transports.base import Transport

HELP = "record samples from live MQTT traffic, to calibrate and evaluate a model"
EPILOG = """what is recorded
  the windows of a stream of the configuration, cut as the daemon cuts them; or payloads: the requests to --model,
  or the messages of --topic, read by --codec. The daemon need not run, and is not disturbed when it does.

examples:
  edged record -c edged.yaml -o calib.npz --count 500
  edged record -c edged.yaml -o calib.npz --seconds 3600 --spread --per-key 50
  edged record -c edged.yaml --topic sensors/press-07/imu -o walking.npz --label walking --seconds 60
  edged record -c edged.yaml --model har -o requests.npz --count 200
  edged record -c edged.yaml --topic cam/+/raw --codec raw --shape image=1,96,96,3 --dtype uint8 -o calib.npz
  edged convert har_savedmodel -o bundles/har --name har --version 2 --quantize int8 --calibration calib.npz

--count, --seconds, --max-bytes, Ctrl-C, SIGTERM and SIGHUP end the recording, whichever is first; what there is is
then written. Where the file cannot be written the error says where the samples are instead.
exit codes:
  65 nothing was recorded, or --append to what is no recording; 69 no broker, or the file cannot be written;
  78 the configuration is wrong"""
# What a stream cannot use is counted and told at the end, not logged line by line.
LOG_LEVEL = "error"

_POLL_S = 0.1
_DIGITS = 18  # of a class number, which 64 bits hold
_SAME = "--append needs the same names, dtypes and shapes"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="configuration (YAML)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.npz", help="the file to write")
    replace = parser.add_mutually_exclusive_group()
    replace.add_argument("--force", action="store_true", help="replace the file that is there")
    replace.add_argument("--append", action="store_true", help="add to the samples of the file that is there")
    parser.add_argument("--label", metavar="NAME|N", help="also write y: this class of every sample, for --eval")
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON document")
    _configure_what(parser.add_argument_group("what"))
    _configure_amount(parser.add_argument_group("how much"))
    broker = parser.add_argument_group("broker")
    broker.add_argument(
        "--connect-timeout", type=arguments.wait, default=5.0, metavar="S", help="seconds (%(default)s)"
    )
    broker.add_argument("--client-id", metavar="ID", help="default: the daemon's, with -record and a number")


def _configure_what(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--stream", default="", metavar="NAME", help="stream of the configuration (default: the only one)"
    )
    group.add_argument("--topic", default="", metavar="FILTER", help="only these topics")
    group.add_argument("--model", default="", metavar="NAME", help="payloads for this model; alone: its requests")
    group.add_argument("--codec", default="", metavar="NAME", help="json, raw, npy, cbor, jpeg, png (default: as told)")
    group.add_argument("--input", default="", metavar="NAME", help="name of the array (default: the bundle's)")
    group.add_argument(
        "--shape",
        type=arguments.shape,
        action=arguments.ByName,
        default={},
        metavar="[NAME=]1,100,6",
        help="of an input, with its batch",
    )
    group.add_argument("--dtype", choices=plan.DTYPES, default="", metavar="D", help="of --shape (default: float32)")


def _configure_amount(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--count", type=arguments.whole, metavar="N", help="end after N samples")
    group.add_argument("--seconds", type=arguments.seconds, metavar="S", help="end after S seconds")
    group.add_argument(
        "--every", type=arguments.whole, default=1, metavar="N", help="keep one of N samples of each sensor"
    )
    group.add_argument("--per-key", type=arguments.whole, metavar="N", help="keep at most N samples of each sensor")
    group.add_argument(
        "--spread", action="store_true", help="draw the --count, or --per-key, samples evenly from the whole time"
    )
    group.add_argument(
        "--max-bytes",
        type=arguments.size,
        default=DEFAULT_BYTES,
        metavar="SIZE",
        help="end at this size (default: 1GiB)",
    )


def run(args: argparse.Namespace) -> int:
    """Record and write; raises an EdgedError when there is no broker, or nothing was recorded."""
    rule = _rule(args)
    config = configuration.load(args.config)
    made = plan.make(config, _wish(args))
    label = _label(args.label, made)
    broker = _broker(config, args.client_id)
    _check_size(rule, made.source.facts)
    with Output(args.output, replace=args.force, append=args.append) as output, Told() as told:
        expected = _expected(output, label, made.source.facts)
        recorder = Recorder(made.source, Kept(rule), made.topic, expected)
        for note in made.notes:
            sys.stderr.write(f"edged: warning: {plain(note)}\n")
        session = _Session(args, broker, made, recorder, told)
        ended = session.record()
        samples = _samples(recorder, made, output.shown, ended)
        count = output.write([{**sample, **label} for sample in samples])
        told_facts = Summary(args.output, made, recorder, ended, session.seconds, session.disconnects, samples, count)
        _tell(told_facts.as_json() if args.json else told_facts.as_text(), told)
    return ExitCode.OK


def _tell(text: str, told: Told) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        if told.name != HANGUP:
            raise
        # The terminal is gone, and what it did not take would be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _samples(recorder: Recorder, made: Plan, shown: str, ended: str) -> list[Sample]:
    if recorder.misfit:
        raise BadDataError(shown, recorder.misfit, _SAME)
    samples = recorder.kept.samples()
    if samples:
        return samples
    where = plain(made.subscription.filter)
    if not recorder.messages:
        advice = "does anything publish there, and may this login read it?"
        raise BadDataError(where, f"no message came until {ended}", advice)
    if recorder.kept.full == "max-bytes":
        raise BadDataError("--max-bytes", f"ended it before the first sample of {where}, which is larger")
    counted = ", ".join(f"{count} {name}" for name, count in recorder.source.counters().items() if count)
    what = f"nothing was recorded: {recorder.messages} messages" + (f" ({counted})" if counted else "")
    raise BadDataError(where, what, "; ".join(recorder.source.reasons))


def _wish(args: argparse.Namespace) -> Wish:
    names = {"stream": args.stream, "topic": args.topic, "model": args.model, "codec": args.codec}
    return Wish(**names, name=args.input, shapes=args.shape, dtype=args.dtype)


def _rule(args: argparse.Namespace) -> Rule:
    if args.spread and (args.count is None) == (args.per_key is None):
        raise UsageError("--spread", "needs --count or --per-key, one of the two", "how many samples to draw")
    return Rule(count=args.count, every=args.every, per_key=args.per_key, spread=args.spread, max_bytes=args.max_bytes)


def _check_size(rule: Rule, facts: Mapping[str, Facts]) -> None:
    if facts and (least := held(math.prod(shape) * dtype.itemsize for dtype, shape in facts.values())) > rule.max_bytes:
        raise UsageError("--max-bytes", f"{size(rule.max_bytes)} hold no sample", f"one takes {size(least)} in memory")


def _label(given: str | None, made: Plan) -> dict[str, Array]:
    """Return what goes beside each sample: nothing, or `y`, a class number or name."""
    if given is None:
        return {}
    if npzfile.LABELS in made.names:
        raise UsageError("--label", f"the model has an input called {npzfile.LABELS!r}")
    if not given.strip() or not given.isprintable():
        raise UsageError("--label", f"must be a class number or a name, got {given!r}")
    digits = given.removeprefix("-")
    if not (digits.isdecimal() and digits.isascii()):
        return {npzfile.LABELS: np.array(given)}
    if len(digits) > _DIGITS:
        raise UsageError("--label", f"a class number has at most {_DIGITS} digits, got {given[:40]!r}")
    return {npzfile.LABELS: np.array(int(given), np.int64)}


def _expected(output: Output, label: Mapping[str, Array], facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return what the samples must be to go with those of the file; checked at once where it is known already."""
    expected = dict(output.before)
    if not expected:
        return {}
    old = None if npzfile.LABELS in facts else expected.pop(npzfile.LABELS, None)
    if not expected:
        raise BadDataError(output.shown, "is no recording: it holds labels alone")
    if (old is None) != (not label):
        has = "has no labels" if label else "has labels (y)"
        raise UsageError("--label", f"{output.shown} {has}", "--append needs all samples labelled, or none")
    if old is not None and (old.dtype.kind, old.shape) != (label[npzfile.LABELS].dtype.kind, ()):
        what = f"the labels of {output.shown} are of another kind"
        raise UsageError("--label", what, "all numbers or all names, one a sample")
    if facts and (misfit := npzfile.misfit(facts, expected)):
        raise BadDataError(output.shown, misfit, _SAME)
    return expected


class _Session:
    """One connection, from the first attempt to the last sample. seconds: how long it recorded."""

    def __init__(self, args: argparse.Namespace, broker: Requester, made: Plan, recorder: Recorder, told: Told) -> None:
        self._args, self._broker, self._plan, self._recorder, self._told = args, broker, made, recorder, told
        self._known = threading.Event()
        self._trouble = "still connecting"
        self.seconds, self.disconnects = 0.0, 0

    def record(self) -> str:
        """Record until something ends it; returns what did. Raises UnavailableError when there is no broker."""
        transport = self._broker.open()
        transport.start(self._recorder.on_message, [self._plan.subscription], on_connection=self._note)
        try:
            self._connect()
            return self._watch(transport)
        finally:
            transport.stop()

    def _note(self, connected: bool, detail: str) -> None:
        """Take note of the connection; on the transport's thread."""
        if self._known.is_set() and not connected and not self._trouble:
            self.disconnects += 1
            self._recorder.interrupted()
        self._trouble = "" if connected else detail
        if connected or isinstance(detail, Denied):
            self._known.set()

    def _connect(self) -> None:
        end_ns = now_ns() + int(self._args.connect_timeout * NS_PER_S)
        while not self._known.wait(_POLL_S) and now_ns() < end_ns:
            if self._told.name:
                raise KeyboardInterrupt
        if self._trouble:
            raise no_connection(self._broker.where, self._args.connect_timeout, self._trouble)

    def _watch(self, transport: Transport) -> str:
        begun_ns = now_ns()
        what = f"{self._plan.what} from {self._plan.subscription.filter}"
        progress = RecordProgress(sys.stderr, what, None if self._args.spread else self._args.count)
        try:
            while not self._recorder.full.wait(_POLL_S):
                self.seconds = (now_ns() - begun_ns) / NS_PER_S
                if ended := self._ended(transport):
                    return ended
                progress.show(self._recorder, self.seconds, self._trouble)
            self.seconds = (now_ns() - begun_ns) / NS_PER_S
            return f"--{self._recorder.kept.full}"
        finally:
            progress.done()

    def _ended(self, transport: Transport) -> str:
        if transport.stats().get("subscriptions_refused"):
            refused = f"refuses the subscription to {plain(self._plan.subscription.filter)}"
            if self._recorder.kept.count:  # after a reconnect: what was recorded before is not lost
                return f"the broker, which {refused}"
            raise UnavailableError(self._broker.where, refused, "its access rules decide")
        late = self._args.seconds is not None and self.seconds >= self._args.seconds
        return self._told.name or ("--seconds" if late else "")


def _broker(config: Config, client_id: str | None) -> Requester:
    """The daemon's broker and login, under a client id of its own: one already in use would be thrown off."""
    broker = config.broker
    if client_id == config.client_id:
        what = f"{client_id!r} is the daemon's own: the broker would throw the daemon off"
        raise UsageError("--client-id", what, "leave it out")
    if client_id is not None and (problem := filters.text_problem(client_id)):
        raise UsageError("--client-id", problem)
    files = {name: getattr(broker, name) for name in brokerurl.TLS_FILES}
    options = {
        **files,
        "protocol": broker.protocol,
        "keepalive_s": broker.keepalive_s,
        "username": broker.username,
        "password": broker.password(),
        "password_file": broker.password_file,
        "client_id": client_id or f"{config.client_id}-record-{os.getpid()}",
        "session_expiry_s": 0,
    }
    return requester(broker.url, options)
