"""`edged infer`: one request from the command line."""

from __future__ import annotations

import argparse
import json
import sys

from edged.client import Client, inputfile, report
from edged.client.options import add_broker_options, broker_options
from edged.client.payloads import Inputs
from edged.client.status import GONE
from edged.errors import (
    BadDataError,
    Code,
    EdgedError,
    ExitCode,
    InternalError,
    RequestError,
    UnavailableError,
    UsageError,
)

HELP = "send one request and print the answer"
EPILOG = """examples:
  edged infer --device press-07 --model har window.npy
  edged infer --broker mqtts://broker.plant --device cam-1 --model digits photo.jpg --json
  printf '{"inputs": [[1, 2, 3]]}' | edged infer --device press-07 --model har --codec json -
exit codes:
  65 the device refused the input, 69 no broker, device or model, 70 anything else"""

# The retained status is there at once or not at all.
_STATUS_WAIT_S = 1.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--device", required=True, help="name of the device")
    parser.add_argument("--model", required=True, help="name of the model on it")
    parser.add_argument("--codec", help="raw, npy, json, jpeg, png or cbor (told by the file where it can)")
    parser.add_argument("--dtype", help="convert the arrays of a .npy, .npz or .csv, for example float32")
    parser.add_argument("--deadline-ms", type=int, default=1000, metavar="N", help="time for the answer (%(default)s)")
    parser.add_argument("--user", help="level of the reply topic (the username)")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="ask N times, one after the other")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("file", metavar="FILE", help=".npy .npz .csv .json .jpg .png .cbor, raw bytes, or - for stdin")
    add_broker_options(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and print the answer; raises an EdgedError whose exit code tells what went wrong."""
    if args.count < 1:
        raise UsageError("--count", f"must be at least 1, got {args.count}")
    inputs, codec = inputfile.load(args.file, args.codec, args.dtype)
    with Client(args.broker, user=args.user, devices=[args.device], **broker_options(args)) as client:
        client.connect(args.connect_timeout)
        try:
            answer = _ask(args, client, inputs, codec)
        except RequestError as error:
            raise _explained(error, args, client) from error
    sys.stdout.write(answer + "\n")
    return ExitCode.OK


def _ask(args: argparse.Namespace, client: Client, inputs: Inputs, codec: str | None) -> str:
    """Ask as often as wanted; returns the last answer and the timing of all as text."""
    round_trips_ms = []
    for _ in range(args.count):
        result = client.infer(args.device, args.model, inputs, deadline_ms=args.deadline_ms, codec=codec)
        round_trips_ms.append(result.round_trip_ms)
    if args.json:
        asked = {"device": args.device, "model": args.model}
        return json.dumps(asked | report.document(result, round_trips_ms))
    return "\n".join(report.lines(result, round_trips_ms))


def _explained(error: RequestError, args: argparse.Namespace, client: Client) -> EdgedError:
    """The request's failure as a command's: whose fault it is decides the exit code."""
    where = f"{args.device}/{args.model}"
    if error.code is Code.INVALID_ARGUMENT:
        return BadDataError(where, str(error))
    absent = error.code in (Code.UNAVAILABLE, Code.NOT_FOUND)
    if error.code is Code.DEADLINE_EXCEEDED:
        status = client.status(args.device, _STATUS_WAIT_S)
        absent = status is None or status.state in GONE
    return UnavailableError(where, str(error)) if absent else InternalError(where, str(error))
