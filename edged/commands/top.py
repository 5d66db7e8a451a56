"""`edged top`: what the devices do, live."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading

from edged import arguments, topics
from edged.client.connection import no_connection, requester
from edged.client.fleet import Fleet
from edged.client.options import add_broker_options, broker_options
from edged.client.toptable import document, screen
from edged.clock import NS_PER_S, now_ns, wall_s
from edged.contract import GONE
from edged.errors import ExitCode, UnavailableError, UsageError
from edged.transports.base import Denied, Subscription

HELP = "watch devices, their models and latencies"
EPILOG = """examples:
  edged top --broker mqtt://broker.plant
  edged top --device press-07 --stages
  edged top --once --json > fleet.json
Percentiles are of the device's last reporting interval (ms) and since its start (all). A model that is not as it
should be says so in its own row, and why in the line below; on a narrow terminal the least important columns go.
BATCH is requests in one inference since the start, KEYS those with a state now, OUTBOX answers of the device that wait
for the broker: each column is there where a device has it."""

_CLEAR, _HOME, _TO_LINE_END, _TO_SCREEN_END = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
# Retained statuses come right after the subscription: by then every device has been named.
_SETTLE_S = 0.5
_POLL_S = 0.05


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--device", action="append", default=[], metavar="NAME", help="only this one; can be repeated")
    parser.add_argument(
        "--interval", type=arguments.seconds, default=2.0, metavar="S", help="seconds between updates (%(default)s)"
    )
    parser.add_argument("--stages", action="store_true", help="one more row for each stage of a request")
    parser.add_argument("--once", action="store_true", help="print once, when each device has reported")
    parser.add_argument(
        "--wait", type=arguments.wait, default=15.0, metavar="S", help="with --once, the longest wait (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document at each update")
    add_broker_options(parser)


def run(args: argparse.Namespace) -> int:
    """Show until interrupted, or once; raises UnavailableError when there is no broker, or with --once no device."""
    for name in args.device:
        if not topics.valid_level(name):
            raise UsageError("--device", f"{name!r} cannot be a device's name")
    fleet, connection = Fleet(frozenset(args.device)), _Connection()
    broker = requester(args.broker, broker_options(args))
    transport = broker.open()
    subscriptions = [Subscription(topic, 1) for topic in fleet.filters()]
    transport.start(fleet.take, subscriptions, on_connection=connection.note)
    try:
        connection.wait(broker.where, args.connect_timeout)
        return _once(args, fleet, broker.where) if args.once else _live(args, fleet, connection)
    finally:
        transport.stop()


class _Connection:
    """Whether there is a connection, and if not, why."""

    def __init__(self) -> None:
        self._known = threading.Event()
        self.trouble = "still connecting"

    def note(self, connected: bool, detail: str) -> None:
        self.trouble = "" if connected else detail
        if connected or isinstance(detail, Denied):
            self._known.set()

    def wait(self, broker: str, timeout_s: float) -> None:
        self._known.wait(timeout_s)
        if self.trouble:
            raise no_connection(broker, timeout_s, self.trouble)


def _once(args: argparse.Namespace, fleet: Fleet, broker: str) -> int:
    pause, begun_ns = threading.Event(), now_ns()
    while not _complete(fleet, begun_ns) and now_ns() - begun_ns < args.wait * NS_PER_S:
        pause.wait(_POLL_S)
    if not fleet.snapshot():
        named = ", ".join(args.device) or "no device"
        raise UnavailableError(broker, f"{named}: nothing heard within {args.wait:g} s")
    sys.stdout.write(_text(args, fleet))
    return ExitCode.OK


def _complete(fleet: Fleet, begun_ns: int) -> bool:
    """Whether every device that should be there has sent its metrics, and the named ones have all been heard."""
    devices = fleet.snapshot()
    reported = all(device.metrics is not None or device.state in GONE for device in devices)
    heard = fleet.only <= {device.name for device in devices}
    return bool(devices) and reported and heard and now_ns() - begun_ns > _SETTLE_S * NS_PER_S


def _live(args: argparse.Namespace, fleet: Fleet, connection: _Connection) -> int:
    redraw = sys.stdout.isatty() and not args.json
    pause = threading.Event()
    sys.stdout.write(_HIDE_CURSOR + _CLEAR if redraw else "")
    try:
        while True:
            sys.stdout.write(_frame(args, fleet, connection) if redraw else _text(args, fleet))
            sys.stdout.flush()
            pause.wait(args.interval)
    except KeyboardInterrupt:
        return ExitCode.OK
    finally:
        sys.stdout.write(_SHOW_CURSOR if redraw else "")


def _text(args: argparse.Namespace, fleet: Fleet) -> str:
    """One update as plain text: a JSON line, or the table, as wide as a terminal is, and an empty line."""
    if args.json:
        return json.dumps({"ts": wall_s(), **document(fleet, now_ns())}) + "\n"
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return "\n".join(screen(fleet, now_ns(), stages=args.stages, width=width)) + "\n\n"


def _frame(args: argparse.Namespace, fleet: Fleet, connection: _Connection) -> str:
    """One update for a terminal: drawn over the last one, without clearing it first (no flicker)."""
    size = shutil.get_terminal_size()
    trouble = [f"no connection: {connection.trouble}"[: size.columns]] if connection.trouble else []
    lines = trouble + screen(fleet, now_ns(), stages=args.stages, width=size.columns)
    if len(lines) > size.lines - 1:
        hidden = len(lines) - size.lines + 2
        lines = [*lines[: size.lines - 2], f"… {hidden} more lines"]
    return _HOME + "".join(line + _TO_LINE_END + "\n" for line in lines) + _TO_SCREEN_END
