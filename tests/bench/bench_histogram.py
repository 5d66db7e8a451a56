"""What the histogram costs: python tests/bench/bench_histogram.py [--json]

Prints the best of several runs, ns a call with the call itself, so what the hot path pays. Aim: at most 1 us a record.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sys
import timeit
from collections.abc import Callable

from edged.latency import Histogram, StageLatency, summary
from edged.request import Request

RECORD_LIMIT_NS = 1_000
REPEATS = 7


def best_ns(call: Callable[[], object], number: int) -> float:
    """Return the ns of one call, from the fastest of `REPEATS` runs: the others were disturbed."""
    return min(timeit.repeat(call, number=number, repeat=REPEATS)) / number * 1e9


def typical() -> Histogram:
    histogram = Histogram()
    rng = random.Random(7)
    for _ in range(100_000):
        histogram.record(int(rng.lognormvariate(14.5, 0.3)))
    return histogram


def request() -> Request:
    made = Request("m", b"", codec="raw", reply_codec="raw", received_ns=1, deadline_ns=2, respond=lambda *_: None)
    made.admitted_ns, made.started_ns, made.decoded_ns = 30_000, 80_000, 120_000
    made.inferred_ns, made.encoded_ns = 4_000_000, 4_050_000
    return made


def measure() -> dict[str, float]:
    """Return ns a call by operation, and the size of a typical encoding in characters."""
    histogram, stages, one = typical(), StageLatency(), request()
    record, text = histogram.record, histogram.encode()
    return {
        "record_fast_us": best_ns(lambda: record(123_456), 200_000),
        "record_slow_s": best_ns(lambda: record(2_345_678_901), 200_000),
        "stages_record": best_ns(lambda: stages.record(one, 4_090_000), 20_000),
        "copy": best_ns(histogram.copy, 2_000),
        "summary": best_ns(lambda: summary(histogram), 500),
        "encode": best_ns(histogram.encode, 500),
        "decode": best_ns(lambda: Histogram.decode(text), 500),
        "encoded_characters": len(text),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the host's facts")
    as_json = parser.parse_args().json
    found = {name: round(value, 1) for name, value in measure().items()}
    host = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    print(
        json.dumps({"host": host, "ns": found}) if as_json else "\n".join(f"{k:20} {v:>12,}" for k, v in found.items())
    )
    return 0 if found["record_slow_s"] <= RECORD_LIMIT_NS else 1


if __name__ == "__main__":
    sys.exit(main())
