"""The demo's client: asks for each window four ways and compares the answers.

Runs as a child: `python -m converters.demo.requests --url-v5 … --url-v3 … --device … --data eval.npz …`. The four ways
are MQTT 5 and 3.1.1, each with raw bytes and with JSON. Standard output gets one JSON line per pass over the windows.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edged.client import Client
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.errors import RequestError
from edged.latency import Histogram, summary

# One user per protocol: a 3.1.1 client would receive the MQTT 5 client's replies too, if they had one name.
USER_V5, USER_V3 = "demo-v5", "demo-v3"
DEADLINE_MS = 5000
# A way that fails so often in a row is broken; going on would only wait for more deadlines.
BROKEN = 5
# An answer written as decimal text may differ from the raw one by the last digit of a float32 probability.
TOLERANCE = 1e-6

Window = npt.NDArray[np.float32]
# window → (answer, round trip in ms); raises RequestError.
Ask = Callable[[Window], tuple[npt.NDArray[Any], float]]


class Tally:
    """What one way of asking gave. different: answers that are not those of the first way."""

    def __init__(self) -> None:
        self.right = self.different = self.failed_in_a_row = 0
        self.errors: Counter[str] = Counter()
        self.round_trips = Histogram()

    def facts(self) -> dict[str, Any]:
        """Return counts, and the percentiles of the round trips as `latency.summary` gives them."""
        counts = {"right": self.right, "different": self.different, "errors": dict(self.errors)}
        return counts | summary(self.round_trips)


def ask_all(ways: dict[str, Ask], tallies: dict[str, Tally], window: Window, label: int) -> None:
    """Ask for one window every way, and count."""
    first: npt.NDArray[Any] | None = None
    for name, ask in ways.items():
        tally = tallies[name]
        try:
            answer, round_trip_ms = ask(window)
        except RequestError as exc:
            tally.errors[exc.code.value] += 1
            tally.failed_in_a_row += 1
            continue
        tally.failed_in_a_row = 0
        first = answer if first is None else first
        tally.round_trips.record(round(round_trip_ms * NS_PER_MS))
        tally.right += int(answer.argmax()) == label
        tally.different += answer.shape != first.shape or not np.allclose(answer, first, rtol=0, atol=TOLERANCE)


def run(
    ways: dict[str, Ask], x: Window, y: npt.NDArray[np.int64], passes: int, period_s: float
) -> dict[str, dict[str, Any]]:
    """Ask for all windows `passes` times, a window (four requests) per `period_s`; return each way's facts.

    Ends early when a way is broken: the facts then say how many errors there were, and that requests are missing.
    """
    tallies = {name: Tally() for name in ways}
    due = now_ns()
    for _ in range(passes):
        for window, label in zip(x, y, strict=True):
            ask_all(ways, tallies, window, int(label))
            if any(tally.failed_in_a_row >= BROKEN for tally in tallies.values()):
                return _report(tallies)
            due = max(due + int(period_s * NS_PER_S), now_ns())
            time.sleep(max(0, due - now_ns()) / NS_PER_S)
        _report(tallies)
    return {name: tally.facts() for name, tally in tallies.items()}


def _report(tallies: dict[str, Tally]) -> dict[str, dict[str, Any]]:
    facts = {name: tally.facts() for name, tally in tallies.items()}
    sys.stdout.write(json.dumps({"ways": facts}) + "\n")
    sys.stdout.flush()
    return facts


def _asker(client: Client, device: str, model: str, codec: Literal["raw", "json"]) -> Ask:
    def ask(window: Window) -> tuple[npt.NDArray[Any], float]:
        result = client.infer(device, model, window[None], deadline_ms=DEADLINE_MS, codec=codec)
        if codec == "raw":  # over MQTT 3.1.1 nothing in the reply names the dtype: the client knows its model
            return np.frombuffer(result.payload, "<f4"), result.round_trip_ms
        (answer,) = result.outputs.values()
        return np.asarray(answer, np.float32).ravel(), result.round_trip_ms

    return ask


def main(argv: list[str] | None = None) -> int:
    """Ask; 0 when every request was sent, whatever came back."""
    args = _arguments(argv)
    with np.load(args.data) as data:
        x, y = data[args.input], data["labels"]
    with (
        Client(args.url_v5, user=USER_V5, protocol="5") as new,
        Client(args.url_v3, user=USER_V3, protocol="3.1.1") as old,
    ):
        ways = {
            "MQTT 5, raw": _asker(new, args.device, args.model, "raw"),
            "MQTT 5, JSON": _asker(new, args.device, args.model, "json"),
            "MQTT 3.1.1, raw": _asker(old, args.device, args.model, "raw"),
            "MQTT 3.1.1, JSON": _asker(old, args.device, args.model, "json"),
        }
        run(ways, x, y, args.passes, args.period_s)
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m converters.demo.requests", description=__doc__)
    parser.add_argument("--url-v5", required=True)
    parser.add_argument("--url-v3", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True, help=".npz with the windows and their labels")
    parser.add_argument("--input", required=True, help="name of the windows in it")
    parser.add_argument("--passes", type=int, required=True)
    parser.add_argument("--period-s", type=float, required=True, help="seconds from one window to the next")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
