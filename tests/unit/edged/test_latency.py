"""The latency histogram against exact quantiles, and its encoding against a decoder written from its text."""

from __future__ import annotations

import base64
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.latency import BUCKETS, FEW, SCHEME, Histogram, bucket_low, summary

US, MS, S = 1_000, 1_000_000, 1_000_000_000

rng = np.random.default_rng(7)
DISTRIBUTIONS = {
    "lognormal around 2 ms": rng.lognormal(np.log(2 * MS), 0.6, 20_000),
    "uniform 1 us to 10 ms": rng.uniform(US, 10 * MS, 20_000),
    "two modes and a tail": np.concatenate(
        [rng.normal(300 * US, 5 * US, 9_000), rng.normal(40 * MS, MS, 900), rng.pareto(1.5, 100) * S % (100 * S) + MS]
    ),
    "whole range": np.exp(rng.uniform(np.log(US), np.log(100 * S), 20_000)),
    "one value": np.full(1_000, 123_457.0),
}
values = st.lists(st.integers(0, 1 << 40), max_size=60)


def of(samples: object) -> Histogram:
    histogram = Histogram()
    for ns in np.asarray(samples, dtype=np.int64).tolist():
        histogram.record(ns)
    return histogram


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_percentiles_are_within_one_percent_of_the_exact_ones(name: str) -> None:
    """Every percentile is within 1 % of the sample of that rank; the ends and the sum are exact."""
    samples = DISTRIBUTIONS[name].astype(np.int64)
    histogram = of(samples)
    for q in (0, 0.1, 1, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100):
        # numpy's own inverted_cdf takes the next rank for 99.9 % of 20,000, out of a rounding error.
        rank = math.ceil(Fraction(str(q)) * len(samples) / 100)
        exact = np.sort(samples)[max(rank, 1) - 1]
        assert abs(histogram.percentile(q) - exact) <= 0.01 * exact, q
    assert (histogram.percentile(0), histogram.min_ns) == (samples.min(), samples.min())
    assert (histogram.percentile(100), histogram.max_ns) == (samples.max(), samples.max())
    assert (histogram.count, histogram.sum_ns) == (len(samples), samples.sum())


def test_percentile_is_the_nearest_rank() -> None:
    """99.9 % of 1000 values is the 999th, not the largest: the rank does not suffer from binary fractions."""
    histogram = of([MS] * 999 + [S])
    assert histogram.percentile(99.9) == pytest.approx(MS, rel=0.01)
    assert histogram.percentile(99.91) == S


def test_percentile_of_nothing_and_of_nonsense() -> None:
    """An empty histogram has no percentile; a q outside 0 to 100 is refused."""
    assert Histogram().percentile(50) is None
    for q in (-0.1, 100.1, float("nan")):
        with pytest.raises(ValueError, match="0 to 100"):
            of([MS]).percentile(q)


def decode_as_documented(text: str) -> tuple[int, int, int, dict[int, int]]:
    """A decoder written from the module's text alone: minimum, maximum, sum, and lower bound in ns → count."""
    numbers, value, shift = [], 0, 0
    for byte in base64.standard_b64decode(text):
        value += (byte % 128) * 2**shift
        shift += 7
        if byte < 128:
            numbers.append(value)
            value = shift = 0
    scheme, minimum, maximum, total, *pairs = numbers
    assert scheme == 1
    buckets, index = {}, 0
    for gap, count in zip(pairs[::2], pairs[1::2], strict=True):
        index += gap
        buckets[(64 + index % 64) * 2 ** (index // 64 + 3)] = count
        index += 1
    return minimum, maximum, total, buckets


def lower_bound(ns: int) -> int:
    """The lower bound of a value's bucket, from the definition: 64 equal parts of its power of two."""
    ns = min(max(ns, 512), 2**37 - 1)
    octave = 512
    while octave * 2 <= ns:
        octave *= 2
    return octave + (ns - octave) // (octave // 64) * (octave // 64)


@given(values)
def test_encoding_reads_as_documented(samples: list[int]) -> None:
    """A decoder written from the text finds every value in its bucket, and the exact minimum, maximum and sum."""
    expected: dict[int, int] = {}
    for ns in samples:
        expected[lower_bound(ns)] = expected.get(lower_bound(ns), 0) + 1
    ends = (min(samples), max(samples), sum(samples)) if samples else (0, 0, 0)
    assert decode_as_documented(of(samples).encode()) == (*ends, expected)


def test_bucket_edges_are_where_the_text_says() -> None:
    """The first and last ns of every bucket are counted in that bucket; the buckets cover 1 us to 100 s."""
    assert (bucket_low(0), bucket_low(BUCKETS)) == (512, 1 << 37)
    for index in range(BUCKETS):
        low, high = bucket_low(index), bucket_low(index + 1) - 1
        assert decode_as_documented(of([low, high]).encode())[3] == {low: 2}
        assert lower_bound(high) == low


@given(values)
def test_decode_undoes_encode(samples: list[int]) -> None:
    """What was encoded comes back equal, and encodes to the same text."""
    histogram = of(samples)
    again = Histogram.decode(histogram.encode())
    assert again == histogram
    assert again.encode() == histogram.encode()
    assert [again.percentile(q) for q in (0, 50, 99)] == [histogram.percentile(q) for q in (0, 50, 99)]


@given(values, values, values)
def test_merge_is_concatenation_and_associative(a: list[int], b: list[int], c: list[int]) -> None:
    """Merging, in any grouping, gives what recording everything in one histogram gives."""
    left, right, tail = of(a), of(a), of(b)
    left.merge(of(b))
    left.merge(of(c))
    tail.merge(of(c))
    right.merge(tail)
    assert left == right == of(a + b + c)


def test_copy_is_independent() -> None:
    """Recording in a copy leaves the original alone."""
    histogram = of([MS])
    twin = histogram.copy()
    twin.record(2 * MS)
    assert (histogram, twin) == (of([MS]), of([MS, 2 * MS]))


@given(values, values)
def test_since_is_what_came_later(first: list[int], later: list[int]) -> None:
    """The interval holds the later values bucket for bucket, with their exact sum and ends within one bucket."""
    histogram = of(first)
    earlier = histogram.copy()
    for ns in later:
        histogram.record(ns)
    interval = histogram.since(earlier)
    exact = of(later)
    assert decode_as_documented(interval.encode())[2:] == decode_as_documented(exact.encode())[2:]
    assert interval.min_ns <= exact.min_ns
    assert interval.max_ns >= exact.max_ns
    assert Histogram.decode(interval.encode()) == interval
    if later and (not first or max(later) > max(first)):
        assert interval.max_ns == max(later)
    if later and 512 <= max(later) < 2**37:
        assert interval.max_ns <= exact.max_ns * 65 / 64


def test_since_refuses_what_is_no_earlier_state() -> None:
    """A restarted or different histogram cannot be subtracted."""
    with pytest.raises(ValueError, match="not an earlier state"):
        of([MS]).since(of([MS, MS]))
    with pytest.raises(ValueError, match="not an earlier state"):
        of([MS + 1000]).since(of([MS]))


def test_values_outside_the_range_are_counted_at_its_ends() -> None:
    """Nothing is lost below 512 ns or above 137 s: count, minimum, maximum and sum still hold."""
    histogram = of([-5, 0, 3, 500 * S])
    assert (histogram.count, histogram.min_ns, histogram.max_ns) == (4, 0, 500 * S)
    assert histogram.sum_ns == 500 * S + 3
    assert decode_as_documented(histogram.encode())[3] == {512: 3, bucket_low(BUCKETS - 1): 1}
    assert histogram.percentile(100) == 500 * S


def test_a_typical_histogram_is_small() -> None:
    """100,000 requests with a spread of two to one, and a tail, encode to less than 1 kB."""
    assert len(of(rng.lognormal(np.log(2 * MS), 0.25, 100_000)).encode()) < 1_000


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 + 128]) + varint(number // 128)


def varints(*numbers: int) -> str:
    return base64.b64encode(b"".join(map(varint, numbers))).decode()


LOW = bucket_low(100)
MALFORMED = {
    "no text": None,
    "empty": "",
    "not base64": "A===",
    "not ASCII": "é" * 8,
    "base64 with spaces": " " + varints(1, 0, 0, 0),
    "base64 with loose bits": "AQAAAB==",
    "only the scheme": varints(1),
    "a gap without a count": varints(1, LOW, LOW, LOW, 100),
    "a number cut short": base64.b64encode(b"\x01\x00\x00\x80").decode(),
    "a number too long": base64.b64encode(b"\x01\x00\x00" + b"\xff" * 9 + b"\x01").decode(),
    "a number with zeros in front": base64.b64encode(b"\x01\x00\x00\x80\x00").decode(),
    "count zero": varints(1, LOW, LOW * 2, LOW * 3, 100, 1, 10, 0, 52, 1),
    "count beyond 2^48": varints(1, 512, 512, 512 << 48, 0, 1 << 48),
    "bucket beyond the last": varints(1, LOW, LOW, LOW, BUCKETS, 1),
    "empty with a maximum": varints(1, 0, 5, 0),
    "minimum in another bucket": varints(1, 600, LOW, LOW, 100, 1),
    "maximum in another bucket": varints(1, LOW, LOW * 2, LOW, 100, 1),
    "sum below what the minimum allows": varints(1, LOW, LOW, LOW - 1, 100, 1),
    "sum above what the maximum allows": varints(1, LOW, LOW, LOW + 1, 100, 1),
    "far too long": varints(1, 0, 0, 0) + "A" * 100_000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_text_is_a_value_error(name: str) -> None:
    """Whatever is wrong with a text that came over the network, it is a ValueError."""
    with pytest.raises(ValueError, match=r"."):
        Histogram.decode(MALFORMED[name])  # type: ignore[arg-type]


def test_the_malformed_texts_are_one_step_from_a_good_one() -> None:
    """The text which the malformed ones vary is itself accepted."""
    assert Histogram.decode(varints(1, LOW, LOW, LOW, 100, 1)) == of([LOW])
    assert Histogram.decode(varints(1, LOW, LOW * 2, LOW * 3, 100, 1, 63, 1)) == of([LOW, LOW * 2])
    assert Histogram.decode(varints(1, 512, 512, 512 << 47, 0, 1 << 47)).count == 1 << 47


@given(
    st.one_of(st.text(max_size=80), st.binary(max_size=80).map(lambda data: base64.b64encode(b"\x01" + data).decode()))
)
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes decode fail otherwise; what it accepts is canonical."""
    try:
        histogram = Histogram.decode(text)
    except ValueError:
        return
    assert histogram.encode() == text


def test_another_scheme_is_refused_by_name() -> None:
    """A histogram of a later scheme is not misread: the error names both numbers."""
    with pytest.raises(ValueError, match=f"scheme {SCHEME + 1} is not known; scheme {SCHEME} is"):
        Histogram.decode(varints(SCHEME + 1, 0, 0, 0))


def test_summary_is_in_microseconds_and_says_when_there_is_little() -> None:
    """100 samples make percentiles, 99 are marked, none give None."""
    full = summary(of(np.arange(1, FEW + 1) * MS))
    assert "few" not in full
    assert full["n"] == FEW
    assert (full["p50_us"], full["p90_us"], full["p99_us"]) == pytest.approx((50_000, 90_000, 99_000), rel=0.01)
    assert full["p999_us"] == full["max_us"] == 100_000.0
    assert summary(of([MS] * (FEW - 1)))["few"] is True
    empty = summary(Histogram())
    assert empty == {"n": 0, "few": True} | dict.fromkeys(("p50_us", "p90_us", "p99_us", "p999_us", "max_us"))
