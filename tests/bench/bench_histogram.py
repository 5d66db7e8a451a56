"""What the histogram costs, and how far off it is: python tests/bench/bench_histogram.py [--json]

Prints the best of several runs, ns a call with the call itself, so what the hot path pays, and the largest error of
any percentile beside the exact one, of a million values of three shapes. Aim: at most 1 us a record, at most 1 %.
"""

from __future__ import annotations

import math
import random
import timeit
from collections.abc import Callable

import report

from edged.figures import StageLatency
from edged.latency import Histogram, summary
from edged.request import Request

RECORD_LIMIT_NS = 1_000
ERROR_LIMIT = 0.01
VALUES = 1_000_000
PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 99.999)
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


def worst_error() -> float:
    """Return the largest relative error of a percentile: latencies of one service, with a tail, and with two modes."""
    rng = random.Random(11)
    shapes: list[Callable[[], float]] = [
        lambda: rng.lognormvariate(14.5, 0.3),
        lambda: rng.lognormvariate(12, 1.5),
        lambda: rng.lognormvariate(11, 0.1) if rng.random() < 0.9 else rng.lognormvariate(16, 0.2),
    ]
    return max(_error([max(1000, int(shape())) for _ in range(VALUES)]) for shape in shapes)


def _error(values: list[int]) -> float:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    values.sort()
    exact = [values[max(0, math.ceil(q / 100 * len(values)) - 1)] for q in PERCENTILES]
    found = histogram.percentiles(PERCENTILES)
    return max(abs((one or 0) - true) / true for one, true in zip(found, exact, strict=True))


def main() -> int:
    args, facts = report.options(__doc__).parse_args(), report.facts()
    found, error = {name: round(value, 1) for name, value in measure().items()}, worst_error()
    lines = [*(f"{name:20} {ns:>12,}" for name, ns in found.items()), f"{'worst percentile':20} {error:>12.2%}"]
    report.tell(args, facts, {"ns": found, "worst_error": error}, lambda: print("\n".join(lines)))
    return 0 if found["record_slow_s"] <= RECORD_LIMIT_NS and error <= ERROR_LIMIT else 1


if __name__ == "__main__":
    report.run(main)
