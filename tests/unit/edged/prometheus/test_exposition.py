"""The text format: read back by a strict parser, with hostile labels and exact counts."""

from __future__ import annotations

import bisect
import itertools
import random

import pytest
from support import promtext

from edged.latency import Histogram
from edged.prometheus.exposition import Exposition

HOSTILE = 'a "quoted"\\ name\nwith a line end, {braces} and ü'


def test_labels_come_back_as_they_were() -> None:
    """Quotes, backslashes and line ends are escaped; the common labels are on each sample."""
    page = Exposition({"device": HOSTILE})
    page.add("edged_build_info", "gauge", "About.", 1, {"version": "\\n"})
    found = promtext.parse(page.text())
    assert promtext.value(found, "edged_build_info", device=HOSTILE, version="\\n") == 1


def test_a_family_stays_together() -> None:
    """Samples of one name stand in one group, whatever came between."""
    page = Exposition({})
    for model in ("a", "b"):
        page.add("edged_requests_total", "counter", "Requests.", 3, {"model": model})
        page.add("edged_queue_requests", "gauge", "Waiting.", 0.5, {"model": model})
    found = promtext.parse(page.text())
    assert [len(family.samples) for family in found.values()] == [2, 2]
    assert promtext.value(found, "edged_queue_requests", model="b") == 0.5


def test_a_histogram_counts_what_lies_below_each_bound() -> None:
    """100,000 latencies: each cumulative count is that of the sorted values, exactly; sum and count too."""
    rng, histogram = random.Random(3), Histogram()
    values = sorted(int(rng.lognormvariate(13, 3)) for _ in range(100_000))
    for value in values:
        histogram.record(value)
    page = Exposition({"device": "d"})
    page.add_histogram("edged_request_duration_seconds", "Latency.", histogram, {"model": "m"})
    found = promtext.parse(page.text())
    buckets = {
        dict(labels)["le"]: count
        for (name, labels), count in found["edged_request_duration_seconds"].samples.items()
        if name.endswith("_bucket")
    }
    assert len(buckets) == 46
    for bound, count in buckets.items():
        ns = float(bound) * 1e9
        expected = len(values) if bound == "+Inf" else bisect.bisect_left(values, round(ns))
        assert count == expected, bound
    assert promtext.value(found, "edged_request_duration_seconds_sum") == pytest.approx(sum(values) / 1e9)


def test_bounds_are_short_and_cover_a_request() -> None:
    """From 8 us to more than 30 s, two in each power of two."""
    page = Exposition({})
    page.add_histogram("x_seconds", "X.", Histogram(), {})
    bounds = [line.partition('le="')[2].partition('"')[0] for line in page.text().splitlines() if "_bucket" in line]
    assert bounds[:4] == ["0.000008", "0.000011264", "0.000016", "0.000022528"]
    assert float(bounds[-2]) > 30
    steps = [float(after) / float(before) for before, after in itertools.pairwise(bounds[:-1])]
    assert all(1.4 <= step <= 1.43 for step in steps)


@pytest.mark.parametrize(
    "text",
    [
        "x 1", "# HELP x X.\n# TYPE x counter\nx 1\n", '# HELP x X.\n# TYPE x gauge\nx{a="\n"} 1\n',
        "# HELP x X.\n# TYPE x gauge\nx 1\nx 2\n", "# HELP x X.\n# TYPE x gauge\ny 1\n",
        "# HELP x X.\n# TYPE x gauge\n",
    ],
)  # fmt: skip
def test_the_parser_is_strict(text: str) -> None:
    """What must not be accepted is not: the tests above mean something."""
    with pytest.raises((ValueError, KeyError)):
        promtext.parse(text)
