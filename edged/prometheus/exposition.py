"""The text format, version 0.0.4, that Prometheus reads.

https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from edged.clock import NS_PER_S
from edged.latency import Histogram, bucket_low

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "histogram"]

# Two bounds in each power of two, from 8 us to 34 s. They are bounds of our own buckets, so that the counts are exact
# (of values below the bound; a value of exactly so many nanoseconds counts as above), and short as decimals:
# 1 us * 2^k is 125 * 2^(k+3) ns, and 1.408 us * 2^k is 88 * 2^(k+4) ns.
_INDICES = sorted([64 * k + 61 for k in range(3, 26)] + [64 * (k + 1) + 24 for k in range(3, 25)])
_BOUNDS = [f"{bucket_low(index) / NS_PER_S:.9f}".rstrip("0").rstrip(".") for index in _INDICES]
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Exposition:
    """Collects samples, each family of one name together. labels: those that every sample has."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._families: dict[str, list[str]] = {}

    def add(self, name: str, kind: Kind, about: str, value: float, labels: Mapping[str, str] | None = None) -> None:
        """Add one sample. about: what the family tells; that of its first sample counts."""
        self._family(name, kind, about).append(f"{name}{self._shown(labels or {})} {_number(value)}")

    def add_histogram(self, name: str, about: str, found: Histogram, labels: Mapping[str, str]) -> None:
        """Add one distribution, in seconds."""
        lines, count = self._family(name, "histogram", about), found.count
        for bound, below in zip([*_BOUNDS, "+Inf"], [*found.below(_INDICES), count], strict=True):
            lines.append(f"{name}_bucket{self._shown({**labels, 'le': bound})} {below}")
        lines.append(f"{name}_sum{self._shown(labels)} {_number(found.sum_ns / NS_PER_S)}")
        lines.append(f"{name}_count{self._shown(labels)} {count}")

    def text(self) -> str:
        """Return everything that was added."""
        return "".join(f"{line}\n" for lines in self._families.values() for line in lines)

    def _family(self, name: str, kind: Kind, about: str) -> list[str]:
        return self._families.setdefault(name, [f"# HELP {name} {about}", f"# TYPE {name} {kind}"])

    def _shown(self, labels: Mapping[str, str]) -> str:
        pairs = (f'{name}="{value.translate(_ESCAPED)}"' for name, value in {**self._labels, **labels}.items())
        return "{" + ",".join(pairs) + "}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
