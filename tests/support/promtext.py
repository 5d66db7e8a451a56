"""A strict reader of Prometheus' text format 0.0.4, written from its description; anything unusual is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(,|$)')
_UNESCAPED = {r"\\": "\\", r"\n": "\n", r"\"": '"'}

Labels = frozenset[tuple[str, str]]


@dataclass
class Family:
    """One metric: its type, what it tells, and the value of each series by sample name and labels."""

    kind: str
    about: str = ""
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)


def parse(text: str) -> dict[str, Family]:
    """Return the families by name. Raises ValueError for what a reader need not accept, and for what breaks a
    convention: counters end in `_total`, histograms are cumulative and whole."""
    if not text.endswith("\n"):
        raise ValueError("the last line has no end")
    reader = _Reader()
    for line in text[:-1].split("\n"):
        reader.take(line)
    for name, family in reader.families.items():
        _check(name, family)
    return reader.families


class _Reader:
    """Takes lines in turn. current: the family whose samples come, helped: the one that was told of last."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self._current = self._helped = self._about = ""

    def take(self, line: str) -> None:
        if line.startswith("# HELP "):
            _, _, self._helped, self._about = line.split(" ", 3)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            if name != self._helped or name in self.families or kind not in ("counter", "gauge", "histogram"):
                raise ValueError(f"wrong or out of place: {line}")
            self.families[name], self._current = Family(kind, self._about), name
        else:
            self._sample(*_sample(line))

    def _sample(self, name: str, labels: Labels, number: float) -> None:
        family = self.families[self._current]
        if self._helped != self._current or name not in _sample_names(self._current, family.kind):
            raise ValueError(f"{name} stands among the samples of {self._current}")
        if (name, labels) in family.samples:
            raise ValueError(f"twice: {name} {sorted(labels)}")
        family.samples[name, labels] = number


def value(families: dict[str, Family], name: str, **labels: str) -> float:
    """Return the one sample of that name whose labels include these."""
    found = [
        number
        for family in families.values()
        for (sample, has), number in family.samples.items()
        if sample == name and set(labels.items()) <= has
    ]
    if len(found) != 1:
        raise ValueError(f"{len(found)} samples {name} with {labels}")
    return found[0]


def _sample(line: str) -> tuple[str, Labels, float]:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise ValueError(f"no sample: {line}")
    name, inside, number = match.groups()
    labels: dict[str, str] = {}
    at = 0
    while inside and at < len(inside):
        label = _LABEL.match(inside, at)
        if label is None or label[1] in labels:
            raise ValueError(f"wrong labels: {line}")
        labels[label[1]] = re.sub(r"\\.", lambda found: _UNESCAPED[found[0]], label[2])
        at = label.end()
    return name, frozenset(labels.items()), float(number)


def _sample_names(name: str, kind: str) -> set[str]:
    return {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}


def _check(name: str, family: Family) -> None:
    if not family.samples:
        raise ValueError(f"{name} has no samples")
    if (family.kind == "counter") != name.endswith("_total"):
        raise ValueError(f"{name} is a {family.kind}")
    if family.kind == "counter" and min(family.samples.values()) < 0:
        raise ValueError(f"{name} is negative")
    if family.kind == "histogram":
        _check_histogram(name, family)


def _check_histogram(name: str, family: Family) -> None:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (sample, labels), number in family.samples.items():
        if sample.endswith("_bucket"):
            bound = dict(labels)["le"]
            series.setdefault(labels - {("le", bound)}, []).append((float(bound), number))
    for labels, buckets in series.items():
        bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
        rises = bounds == sorted(set(bounds)) and counts == sorted(counts)
        whole = bounds[-1] == float("inf") and counts[-1] == family.samples[f"{name}_count", labels]
        if not (rises and whole and (f"{name}_sum", labels) in family.samples):
            raise ValueError(f"{name} of {sorted(labels)} is no histogram")
