"""Two runs beside each other: the ratios of what they have in common, and whether they can be compared at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edged.bench import host
from edged.bench.document import Doc
from edged.shown import listed

# What `Pair.ratios` returns, by name.
RATIOS = ("p50", "p90", "p99", "p999", "max", "ok_per_s")
_KEYS = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")


@dataclass(frozen=True)
class Pair:
    """The same case in both runs."""

    label: str
    first: Doc
    second: Doc

    def ratios(self) -> list[float | None]:
        """Return second / first of P50, P90, P99, P99.9, maximum and answers a second; None where there is none."""
        earlier, later = self.first["latency"], self.second["latency"]
        return [
            *(_ratio(earlier[key], later[key]) for key in _KEYS),
            _ratio(self.first["ok_per_s"], self.second["ok_per_s"]),
        ]


def _ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first and second is not None else None


def pairs(first: Doc, second: Doc) -> list[Pair]:
    """Return the cases that both have, by their label; one of each is a pair whatever they are called."""
    if len(first["runs"]) == len(second["runs"]) == 1:
        (a,), (b,) = first["runs"], second["runs"]
        label = a["label"] if a["label"] == b["label"] else f"{a['label']} → {b['label']}"
        return [Pair(label, a, b)]
    theirs = {run["label"]: run for run in second["runs"]}
    return [Pair(run["label"], run, theirs[run["label"]]) for run in first["runs"] if run["label"] in theirs]


def remarks(first: Doc, second: Doc) -> list[str]:
    """Return what a reader of the ratios must know, the gravest first; empty when nothing differs."""
    return [*_hosts(first, second), *_versions(first, second), *_cases(first, second), *_interrupted(first, second)]


def _hosts(first: Doc, second: Doc) -> Iterator[str]:
    differ = [
        f"{key} {first['host'].get(key)} / {second['host'].get(key)}"
        for key in host.COMPARED
        if first["host"].get(key) != second["host"].get(key)
    ]
    if differ:
        yield f"the hosts differ, so the ratios are not of edged alone: {', '.join(differ)}"


def _versions(first: Doc, second: Doc) -> Iterator[str]:
    names = sorted(
        {*first["host"], *second["host"]}
        & {"edged", "python", "numpy", "paho-mqtt", "ai-edge-litert", "tflite-runtime"}
    )
    found = [(name, first["host"].get(name), second["host"].get(name)) for name in names]
    differ = [f"{name} {a} / {b}" for name, a, b in found if a != b]
    if differ:
        yield f"versions differ: {', '.join(differ)}"


def _cases(first: Doc, second: Doc) -> Iterator[str]:
    paired = {pair.label for pair in pairs(first, second)}
    if len(first["runs"]) == len(second["runs"]) == 1:
        return
    for name, found in (("A", first), ("B", second)):
        alone = [run["label"] for run in found["runs"] if run["label"] not in paired]
        if alone:
            yield f"only in {name}: {listed(alone, 5)}"


def _interrupted(first: Doc, second: Doc) -> Iterator[str]:
    for name, found in (("A", first), ("B", second)):
        if found["interrupted"]:
            yield f"{name} was interrupted"
