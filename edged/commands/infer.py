"""`edged infer`: one request from the command line."""

from __future__ import annotations

import argparse
import json
import re
import sys

from edged import arguments
from edged.client import Client, inputfile, report
from edged.client.api import DEFAULT_USER
from edged.client.options import add_broker_options, broker_options
from edged.client.payloads import Inputs
from edged.client.status import NO_STATE, describe
from edged.clock import now_ns
from edged.errors import (
    BadDataError,
    Code,
    EdgedError,
    ExitCode,
    InternalError,
    RequestError,
    UnavailableError,
)

HELP = "send one request and print the answer"
EPILOG = """examples:
  edged infer --device press-07 --model har window.npy
  edged infer --broker mqtts://broker.plant --device cam-1 --model digits photo.jpg --json
  printf '{"inputs": [[1, 2, 3]]}' | edged infer --device press-07 --model har --codec json -
exit codes:
  65 the device refused the input, 69 no broker, device, model or answer in time, 70 anything else"""

_REFUSED = (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION, Code.UNIMPLEMENTED)
_ABSENT = (Code.UNAVAILABLE, Code.NOT_FOUND, Code.DEADLINE_EXCEEDED)
_OTHER_USER = "where the broker's access rules hang on the login, --user must be the login"
_NAMED_BY_CERTIFICATE = "where the broker takes a certificate's CN for the login, --user must be that CN"
# The retained status is there at once or not at all.
_STATUS_WAIT_S = 1.0
# How a device says that an array has the wrong dtype.
_OTHER_DTYPE = re.compile(r"expected (?P<expected>(?:u?int|float)\d+|bool), got (?:(?:u?int|float|complex)\d+|bool)\b")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--device", required=True, help="name of the device")
    parser.add_argument("--model", required=True, help="name of the model on it")
    parser.add_argument("--codec", help="npy, json, cbor, jpeg, png or raw (told by the file where it can)")
    parser.add_argument("--dtype", help="convert the arrays of a .npy, .npz or .csv, for example float32")
    parser.add_argument(
        "--deadline-ms", type=arguments.whole, default=1000, metavar="N", help="time for the answer (%(default)s)"
    )
    parser.add_argument(
        "--user",
        help=f"level of the reply topics (the login, else {DEFAULT_USER}); with a certificate for a login, its CN",
    )
    parser.add_argument(
        "--state-key", metavar="KEY", help="which of the user's states, of a model that keeps state (needs MQTT 5)"
    )
    parser.add_argument(
        "--count", type=arguments.whole, default=1, metavar="N", help="ask N times, one after the other"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("file", metavar="FILE", help=".npy .npz .csv .json .jpg .png .cbor, raw bytes, or - for stdin")
    add_broker_options(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and print the answer; raises an EdgedError whose exit code tells what went wrong."""
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
        result = client.infer(
            args.device, args.model, inputs, deadline_ms=args.deadline_ms, codec=codec, state_key=args.state_key
        )
        round_trips_ms.append(result.round_trip_ms)
    if args.json:
        asked = {"device": args.device, "model": args.model}
        return json.dumps(asked | report.document(result, round_trips_ms))
    return "\n".join(report.lines(result, round_trips_ms))


def _explained(error: RequestError, args: argparse.Namespace, client: Client) -> EdgedError:
    """The request's failure as a command's: whose fault it is decides the exit code."""
    where, told, hint = f"{args.device}/{args.model}", str(error), ""
    if error.code in _REFUSED:
        found = _OTHER_DTYPE.search(error.message)
        if found is not None and args.dtype is None:
            hint = f"try --dtype {found['expected']}"
        return BadDataError(where, told, hint)
    if error.code not in _ABSENT:
        return InternalError(where, told)
    if error.code is Code.DEADLINE_EXCEEDED:
        # The retained status may come after the deadline was over.
        status = client.status(args.device, _STATUS_WAIT_S)
        told = told.replace(NO_STATE, describe(status, now_ns()))
        hint = _about_user(args, client)
    return UnavailableError(where, told, hint)


def _about_user(args: argparse.Namespace, client: Client) -> str:
    """What may be wrong with the user where no answer comes; "" where nothing is known."""
    if args.cert_file is not None and client.login is None:
        return _NAMED_BY_CERTIFICATE
    return _OTHER_USER if client.user not in (client.login, DEFAULT_USER) else ""
