"""Latency histograms: log-linear buckets, integer nanoseconds, at most 1 % error, mergeable across devices.

**Bucket scheme 1.** 64 equal buckets in each power of two, from 2^9 ns (512 ns) to 2^37 ns (137 s): 28 * 64 = 1792
buckets, which covers 1 us to 100 s. A value v with 2^9 <= v < 2^37 and b bits (2^(b-1) <= v < 2^b) lies in bucket

    index(v) = 64 * (b - 10) + (v >> (b - 7)) - 64

Bucket i holds low(i) <= v < low(i + 1), where low(i) = (64 + i % 64) << (i // 64 + 3). Smaller values are counted in
bucket 0 and larger ones in bucket 1791. A percentile is reported as the middle of its bucket, so it is wrong by at most
half a bucket: 1/128 = 0.78 % (only values inside the range have this promise). Minimum, maximum and sum are exact.

**Encoding.** Base64 (RFC 4648 section 4, with padding) of a list of unsigned LEB128 varints, each in its shortest form:

    scheme, min_ns, max_ns, sum_ns, then for each bucket that is not empty, by rising index: gap, count

`gap` is the number of empty buckets since the last one written (or since the start), `count` is at least 1. The list
ends where the bytes end. An empty histogram is `scheme, 0, 0, 0`. min_ns, max_ns and sum_ns are below 2^63, a count is
below 2^48. min_ns lies in the first bucket written and max_ns in the last. A reader refuses a scheme it does not know.

Cost: a fraction of a microsecond a record, no allocation; 14 KiB a histogram. Not thread-safe: who shares one locks.
"""

from __future__ import annotations

import base64
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

SCHEME = 1
BUCKETS = 1792
FEW = 100  # a percentile of fewer samples says so

_SUB_BITS = 6
_SUB = 1 << _SUB_BITS
_FLOOR = 1 << 9
_CEILING = 1 << 37
_OFFSET = 4 * _SUB  # what makes index(_FLOOR) zero in `(e << 6) + (v >> e)`
_COUNT_BITS = 48
_VALUE_BITS = 63
_NO_MINIMUM = 1 << _VALUE_BITS  # above every value
_NOT_EARLIER = "not an earlier state of this histogram"
_MAX_TEXT = 32_768  # more than the longest valid encoding
_PPM_PER_PERCENT = 10_000


def bucket_low(index: int) -> int:
    """Return the smallest ns of bucket `index`; `bucket_low(index + 1)` is its upper bound, exclusive."""
    return (_SUB + index % _SUB) << (index // _SUB + 3)


class Histogram:
    """A latency distribution. min_ns, max_ns and sum_ns are exact, and 0 while it is empty."""

    __slots__ = ("_counts", "_min_ns", "max_ns", "sum_ns")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * BUCKETS))
        self.max_ns = self.sum_ns = 0
        self._min_ns = _NO_MINIMUM

    def record(self, ns: int) -> None:
        """Count one value; a negative one counts as 0."""
        if _FLOOR <= ns < _CEILING:
            shift = ns.bit_length() - 7
            self._counts[(shift << 6) + (ns >> shift) - 256] += 1  # literals: a global look-up costs a tenth of it all
        else:
            ns = max(ns, 0)
            self._counts[0 if ns < _FLOOR else BUCKETS - 1] += 1
        if ns > self.max_ns:  # noqa: PLR1730  # max() costs three times as much
            self.max_ns = ns
        if ns < self._min_ns:  # noqa: PLR1730  # as above
            self._min_ns = ns
        self.sum_ns += ns

    @property
    def min_ns(self) -> int:
        """The exact minimum."""
        return 0 if self._min_ns == _NO_MINIMUM else self._min_ns

    @property
    def count(self) -> int:
        """How many values were recorded."""
        return sum(self._counts)

    def below(self, indices: Iterable[int]) -> list[int]:
        """Return how many values lie below each of these buckets; `indices` rise."""
        found, total, last = [], 0, 0
        for index in indices:
            total += sum(self._counts[last:index])
            last = index
            found.append(total)
        return found

    def percentile(self, q: float) -> int | None:
        """Return the ns of rank ceil(q / 100 * count) (nearest rank, at least 1); None when empty.

        q: 0 to 100, taken to 1/10,000 of a percent, else ValueError. The first rank is the exact minimum, the last the
        exact maximum, the others the middle of their bucket.
        """
        return self.percentiles((q,))[0]

    def percentiles(self, qs: Iterable[float]) -> list[int | None]:
        """Return `percentile(q)` of each q, in one pass."""
        cumulative = list(accumulate(self._counts))
        return [self._at(cumulative, q) for q in qs]

    def _at(self, cumulative: list[int], q: float) -> int | None:
        if not 0 <= q <= 100:  # noqa: PLR2004
            raise ValueError(f"a percentile is from 0 to 100, got {q}")
        count = cumulative[-1]
        if not count:
            return None
        rank = -(-round(q * _PPM_PER_PERCENT) * count // (100 * _PPM_PER_PERCENT))  # integers: 99.9 % of 1000 is 999
        if rank <= 1:
            return self.min_ns
        if rank == count:
            return self.max_ns
        index = bisect_left(cumulative, rank)
        middle = (bucket_low(index) + bucket_low(index + 1)) // 2
        return min(max(middle, self.min_ns), self.max_ns)

    def merge(self, other: Histogram) -> None:
        """Add every value of `other`: the result is as if all had been recorded here."""
        self._min_ns = min(self._min_ns, other._min_ns)
        self.max_ns = max(self.max_ns, other.max_ns)
        self.sum_ns += other.sum_ns
        for index, count in other._occupied():
            self._counts[index] += count

    def copy(self) -> Histogram:
        """Return an independent copy."""
        twin = Histogram()
        twin._counts[:] = self._counts
        twin._min_ns, twin.max_ns, twin.sum_ns = self._min_ns, self.max_ns, self.sum_ns
        return twin

    def since(self, earlier: Histogram) -> Histogram:
        """Return what was recorded after the copy `earlier` was taken; counts and sum are exact.

        The minimum and maximum are exact where they are new ones, else the bound of the outermost bucket. Raises
        ValueError when `earlier` is no earlier state of this histogram.
        """
        new = Histogram()
        new.sum_ns = self.sum_ns - earlier.sum_ns
        try:
            new._counts[:] = array("Q", map(int.__sub__, self._counts, earlier._counts))
        except OverflowError:  # a negative count
            raise ValueError(_NOT_EARLIER) from None
        new._bound_by(self, earlier)
        if not new._consistent():
            raise ValueError(_NOT_EARLIER)
        return new

    def _bound_by(self, later: Histogram, earlier: Histogram) -> None:
        indices = [index for index, _ in self._occupied()]
        if not indices:
            return
        first, last = indices[0], indices[-1]
        inner_min = max(later._min_ns, bucket_low(first) if first else 0)
        inner_max = min(later.max_ns, bucket_low(last + 1) - 1) if last < BUCKETS - 1 else later.max_ns
        self._min_ns = later._min_ns if later._min_ns < earlier._min_ns else inner_min
        self.max_ns = later.max_ns if later.max_ns > earlier.max_ns else inner_max

    def _occupied(self) -> Iterator[tuple[int, int]]:
        return ((index, count) for index, count in enumerate(self._counts) if count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        mine = (self._min_ns, self.max_ns, self.sum_ns, self._counts)
        return mine == (other._min_ns, other.max_ns, other.sum_ns, other._counts)

    __hash__ = None  # type: ignore[assignment]  # mutable, compared by value

    def encode(self) -> str:
        """Serialise (see the module's text); a typical histogram is well under 1 kB."""
        out = bytearray()
        for value in (SCHEME, self.min_ns, self.max_ns, self.sum_ns):
            _put_varint(out, value)
        following = 0
        for index, count in self._occupied():
            _put_varint(out, index - following)
            _put_varint(out, count)
            following = index + 1
        return base64.b64encode(out).decode()

    @classmethod
    def decode(cls, text: str) -> Histogram:
        """Read what `encode` wrote, bit for bit; raises ValueError on anything else, naming an unknown scheme."""
        values = _varints(_unbase64(text))
        if not values or values[0] != SCHEME:
            found = values[0] if values else "missing"
            raise ValueError(f"bucket scheme {found} is not known; scheme {SCHEME} is")
        if len(values) < 4 or len(values) % 2:  # noqa: PLR2004
            raise ValueError("histogram: cut short")
        new = cls()
        minimum, new.max_ns, new.sum_ns = values[1:4]
        new._fill(values[4::2], values[5::2])
        new._min_ns = minimum if minimum or new.count else _NO_MINIMUM
        if not new._consistent():
            raise ValueError("histogram: minimum, maximum or sum do not agree with the buckets")
        return new

    def _fill(self, gaps: list[int], counts: list[int]) -> None:
        index = -1
        for gap, count in zip(gaps, counts, strict=True):
            index += gap + 1
            if index >= BUCKETS or not 0 < count < 1 << _COUNT_BITS:
                raise ValueError(f"histogram: bucket {index} with count {count} is out of range")
            self._counts[index] = count

    def _consistent(self) -> bool:
        indices = [index for index, _ in self._occupied()]
        if not indices:
            return (self._min_ns, self.max_ns, self.sum_ns) == (_NO_MINIMUM, 0, 0)
        count, ends = self.count, (_index(self._min_ns), _index(self.max_ns))
        return ends == (indices[0], indices[-1]) and self._min_ns * count <= self.sum_ns <= self.max_ns * count


def _index(ns: int) -> int:
    ns = min(max(ns, _FLOOR), _CEILING - 1)
    shift = ns.bit_length() - _SUB_BITS - 1
    return (shift << _SUB_BITS) + (ns >> shift) - _OFFSET


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:  # noqa: PLR2004
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _varints(data: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _VALUE_BITS or (byte == 0 and shift > 7):  # noqa: PLR2004
            raise ValueError("histogram: a number that is too long")
        if byte < 0x80:  # noqa: PLR2004
            values.append(value)
            value = shift = 0
    if shift:
        raise ValueError("histogram: cut short")
    return values


def _unbase64(text: object) -> bytes:  # it comes out of somebody's JSON
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise ValueError(f"histogram: not a text of at most {_MAX_TEXT} characters")
    data = base64.b64decode(text, validate=True)  # binascii.Error is a ValueError
    if base64.b64encode(data).decode() != text:
        raise ValueError("histogram: not canonical base64")
    return data


Summary = dict[str, int | float | bool | None]


def summary(histogram: Histogram) -> Summary:
    """Return {n, p50_us, p90_us, p99_us, p999_us, max_us}: microseconds to one decimal, None when empty.

    "few": True is added when there are fewer than `FEW` values.
    """
    p50, p90, p99, p999 = (_us(ns) for ns in histogram.percentiles((50, 90, 99, 99.9)))
    count = histogram.count
    found: Summary = {"n": count, "p50_us": p50, "p90_us": p90, "p99_us": p99, "p999_us": p999}
    found["max_us"] = _us(histogram.max_ns if count else None)
    return found | {"few": True} if count < FEW else found


def _us(ns: int | None) -> float | None:
    return None if ns is None else round(ns / 1000, 1)
