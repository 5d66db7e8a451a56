"""How the text of the command's options becomes a plan."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from edged import arguments
from edged.bench.ask import Wish
from edged.bench.plan import ClosedLoad, Load, OpenLoad, Span, SparseLoad
from edged.errors import UsageError

T = TypeVar("T")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S = 7 * 86_400.0
_FASTEST = 1_000_000.0
_MOST_STEPS = 1000
# Where nothing else is said: how often, how long, and how many intervals of sparse traffic.
_RATE, _SECONDS, _KNEE_SECONDS, _INTERVALS = 100.0, 10.0, 5.0, 12


def duration(text: str) -> float:
    """Read `500ms`, `10s`, `30m`, `2h` or plain seconds; returns seconds."""
    found = _DURATION.fullmatch(text)
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"must be like 500ms, 10s or 30m, got {text!r}")
    return value


def warmup(text: str) -> tuple[float, int]:
    """Read a duration with its unit, or a number of requests: (seconds, requests)."""
    return (0.0, int(text)) if text.isdecimal() and len(text) < 10 else (duration(text), 0)  # noqa: PLR2004


def rate(text: str) -> float:
    """Read requests a second."""
    value = arguments.amount(text)
    if not 0 < value <= _FASTEST:
        raise argparse.ArgumentTypeError(f"must be more than 0 a second and at most {_FASTEST:g}, got {text!r}")
    return value


def several(read: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return a reader of values with commas between them."""

    def values(text: str) -> list[T]:
        return [read(part) for part in text.split(",")]

    return values


def ramp(text: str) -> list[float]:
    """Read FROM:TO:STEP."""
    parts = text.split(":")
    try:
        low, high, step = map(rate, parts)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be FROM:TO:STEP, got {text!r}") from None
    count = int((high - low) / step + 1e-9) + 1
    if not 1 <= count <= _MOST_STEPS:
        raise argparse.ArgumentTypeError(f"must have 1 to {_MOST_STEPS} steps, got {text!r}")
    return [round(low + i * step, 6) for i in range(count)]


def qos(text: str) -> int:
    """Read a quality of service."""
    if text not in ("0", "1", "2"):
        raise argparse.ArgumentTypeError(f"is 0, 1 or 2, got {text!r}")
    return int(text)


def add(parser: argparse.ArgumentParser) -> None:
    """Add what tells the request, the load and how long."""
    _add_request(parser.add_argument_group("request"))
    _add_load(parser.add_argument_group("load"))


def _add_request(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--input", metavar="FILE", help=".npy .npz .csv .json .jpg .png .cbor or raw bytes (else random values)"
    )
    group.add_argument("--codec", help="npy, json, cbor, jpeg, png or raw (told by the file where it can, else raw)")
    group.add_argument("--dtype", help="of the values, for example float32")
    group.add_argument("--shape", type=arguments.shape, action=arguments.ByName, default={}, metavar="[NAME=]DIMS",
                       help="random values of this shape, for example 1,224,224,3; can be repeated")  # fmt: skip
    group.add_argument("--payload", type=several(arguments.size), default=[], metavar="SIZE[,SIZE]",
                       help="random bytes, for example 64,150528,1MiB")  # fmt: skip
    group.add_argument(
        "--qos",
        type=several(qos),
        default=[0],
        metavar="N[,N]",
        help="of requests and replies: 0, 1 or 2, which is 1 beyond the broker (0)",
    )
    group.add_argument(
        "--deadline-ms", type=arguments.whole, default=1000, metavar="N", help="time for an answer (%(default)s)"
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of random values and arrivals (%(default)s)")


def _add_load(group: argparse._ArgumentGroup) -> None:
    loads = group.add_mutually_exclusive_group()
    loads.add_argument("--rate", "--rates", type=several(rate), dest="rates", metavar="R[,R]",
                       help="requests a second whatever comes back: an open loop (100)")  # fmt: skip
    loads.add_argument("--ramp", type=ramp, dest="rates", metavar="FROM:TO:STEP", help="one run at each of these rates")
    loads.add_argument("--closed", action="store_true", help="send when an answer came: finds the saturation")
    loads.add_argument(
        "--every", type=duration, metavar="T", help="sparse traffic: one request every T, then a few back to back"
    )
    loads.add_argument(
        "--find-knee",
        action="store_true",
        help="the highest rate with its P99 within --p99-ms, all answered without error",
    )
    group.add_argument("--p99-ms", type=rate, metavar="X", help="the bound of --find-knee")
    group.add_argument("--arrivals", choices=("constant", "poisson"), default="constant", help="(%(default)s)")
    group.add_argument(
        "--concurrency", type=several(arguments.whole), metavar="N[,N]", help="in flight, with --closed (1)"
    )
    group.add_argument("--duration", type=duration, metavar="T",
                       help="of each run, for example 30m (10s; 5s for a knee, 12 intervals of --every)")  # fmt: skip
    group.add_argument(
        "--warmup", type=warmup, default=(1.0, 0), metavar="T|N", help="time, or requests, that do not count (1s)"
    )


def wish(args: argparse.Namespace, models: Sequence[str]) -> Wish:
    """Return what is asked; `models` are those where none is named. Raises UsageError for what does not go together."""
    sources = {"--input": args.input, "--shape": args.shape, "--payload": args.payload}
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        raise UsageError(given[1], f"cannot stand beside {given[0]}", "each tells what is sent")
    if args.dtype and not (args.shape or args.input):
        raise UsageError("--dtype", "is of the values of --shape or --input", "without them the model's own are sent")
    return Wish(
        args.model or models,
        args.qos,
        args.deadline_ms,
        args.input,
        args.codec,
        args.dtype,
        args.payload,
        args.shape,
        args.seed,
    )


def loads(args: argparse.Namespace) -> Sequence[Load]:
    """Return the loads that are asked for. Raises UsageError for options that do not go together."""
    wrong = next(_misplaced(args), None)
    if wrong is not None:
        raise UsageError(*wrong)
    if args.closed:
        return [ClosedLoad(number) for number in args.concurrency or [1]]
    if args.every:
        return [SparseLoad(args.every)]
    return [OpenLoad(value, args.arrivals, args.seed) for value in args.rates or [_RATE]]


def _misplaced(args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    if args.concurrency and not args.closed:
        yield "--concurrency", "is of a closed loop (--closed); an open loop sends by its schedule"
    if args.find_knee and args.p99_ms is None:
        yield "--find-knee", "needs --p99-ms, the bound that P99 must keep"
    if args.p99_ms is not None and not args.find_knee:
        yield "--p99-ms", "is of --find-knee; --max-p99-ms is the bound of other runs"
    if args.arrivals == "poisson" and (args.closed or args.every):
        yield "--arrivals", "is of an open loop"
    if args.find_knee and (len(args.model) > 1 or len(args.payload) > 1 or len(args.qos) > 1):
        yield "--find-knee", "is of one model, one payload and one QoS"


def span(args: argparse.Namespace) -> Span:
    """Return how long each run lasts."""
    usual = args.every * _INTERVALS if args.every else _KNEE_SECONDS if args.find_knee else _SECONDS
    return Span(args.duration or usual, *args.warmup)
