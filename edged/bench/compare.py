"""Two runs beside each other: the ratios of what they have in common, and whether they can be compared at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from edged.bench import alike, host
from edged.bench.document import FORMAT, Doc
from edged.shown import listed

# What `Pair.ratios` returns, by name.
RATIOS = ("p50", "p90", "p99", "p999", "max", "ok_per_s")
_KEYS = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
# Of the target and its model: what a ratio may be due to.
_TARGET = ("device", "broker", "transport", "protocol")
_MODEL = ("version", "sha256", "runtime", "delegate", "threads")


@dataclass(frozen=True)
class Pair:
    """A case of either run. differs: why they are not the same case; then there are no ratios."""

    label: str
    first: Doc
    second: Doc
    differs: tuple[str, ...] = ()

    def ratios(self) -> list[float | None]:
        """Return second / first of P50, P90, P99, P99.9, maximum and answers a second; None where there is none."""
        if self.differs:
            return [None] * len(RATIOS)
        earlier, later = self.first["latency"], self.second["latency"]
        return [
            *(_ratio(earlier[key], later[key]) for key in _KEYS),
            _ratio(self.first["ok_per_s"], self.second["ok_per_s"]),
        ]


def _ratio(first: float | None, second: float | None) -> float | None:
    return second / first if first and second is not None else None


def pairs(first: Doc, second: Doc) -> list[Pair]:
    """Return the cases that both have; one run of each is a pair whatever it was, and says what differs."""
    if len(first["runs"]) == len(second["runs"]) == 1:
        (a,), (b,) = first["runs"], second["runs"]
        label = a["label"] if a["label"] == b["label"] else f"{a['label']} → {b['label']}"
        return [Pair(label, a, b, tuple(alike.unlike([a], [b])))]
    theirs = defaultdict(list)
    for run in second["runs"]:
        theirs[alike.key(run)].append(run)
    # A case that was run more than once (a rate that was confirmed): the first with the first, and so on.
    return [Pair(run["label"], run, same.pop(0)) for run in first["runs"] if (same := theirs[alike.key(run)])]


def knees(first: Doc, second: Doc) -> float | None:
    """Return the knee of B / that of A, None where they are not of the same bound, question, or not there."""
    a, b = first["knee"], second["knee"]
    if not a or not b or a["p99_bound_ms"] != b["p99_bound_ms"] or alike.unlike(_asked(first), _asked(second)):
        return None
    return _ratio(a["rate"], b["rate"])


def _asked(found: Doc) -> list[Doc]:
    """Return the runs of a search without their rates, which it chose itself."""
    return [
        run | {"load": {"kind": run["load"]["kind"], "arrivals": run["load"].get("arrivals")}} for run in found["runs"]
    ]


def judged(first: Doc, second: Doc) -> bool:
    """Whether there is anything of which a ratio can be told."""
    told = (ratio for pair in pairs(first, second) for ratio in pair.ratios())
    return any(ratio is not None for ratio in told) or knees(first, second) is not None


def unjudged(first: Doc, second: Doc) -> str:
    """Return why there is no ratio."""
    if any(not pair.differs for pair in pairs(first, second)):
        return "no ratio, for one of the two runs has no answers"
    if first["knee"] and second["knee"] and not alike.unlike(_asked(first), _asked(second)):
        return "no ratio, for the two knees are of different bounds, or one was not found"
    return "no ratio, for the two runs were not asked the same"


def document(first: Doc, second: Doc) -> Doc:
    """Return the comparison as data: remarks, the ratio of the knees, and every pair with its figures.

    `differs` says why a pair is not judged; its `ratios` are None then, as is one whose figure is missing.
    """
    return {
        "format": FORMAT, "tool": "edged bench --compare", "remarks": remarks(first, second),
        "knee": knees(first, second), "cases": [_case(pair) for pair in pairs(first, second)],
        "a": _origin(first), "b": _origin(second),
    }  # fmt: skip


def _case(pair: Pair) -> Doc:
    ratios = None if pair.differs else dict(zip(RATIOS, pair.ratios(), strict=True))
    sides = {
        side: {"n": run["latency"]["n"], **{key: run["latency"][key] for key in _KEYS}, "ok_per_s": run["ok_per_s"]}
        for side, run in (("a", pair.first), ("b", pair.second))
    }
    return {"case": pair.label, "differs": list(pair.differs), **sides, "ratios": ratios}


def _origin(found: Doc) -> Doc:
    return {"device": found["target"].get("device"), "command": found["command"], "ts": found["ts"]}


def remarks(first: Doc, second: Doc) -> list[str]:
    """Return what a reader of the ratios must know, the gravest first; empty when nothing differs."""
    return [
        *alike.unlike(
            *(_asked(found) if first["knee"] and second["knee"] else found["runs"] for found in (first, second))
        ),
        *_hosts(first, second),
        *_targets(first, second),
        *_versions(first, second),
        *alike.conditions(first["runs"], second["runs"]),
        *_cases(first, second),
        *_knees(first, second),
        *_interrupted(first, second),
    ]


def _hosts(first: Doc, second: Doc) -> Iterator[str]:
    differ = _different(first["host"], second["host"], host.COMPARED)
    if differ:
        yield f"the hosts differ, so the ratios are not of edged alone: {differ}"


def _targets(first: Doc, second: Doc) -> Iterator[str]:
    differ = _different(first["target"], second["target"], _TARGET)
    if differ:
        yield f"the targets differ: {differ}"
    models, others = (found["target"].get("models", {}) for found in (first, second))
    for name in sorted({*models} & {*others} & {run["model"] for run in first["runs"]}):
        differ = _different(models[name], others[name], _MODEL)
        if differ:
            yield f"the model {name} differs: {differ}"


def _versions(first: Doc, second: Doc) -> Iterator[str]:
    names = ("ai-edge-litert", "edged", "numpy", "paho-mqtt", "python", "tflite-runtime")
    differ = _different(first["host"], second["host"], names)
    if differ:
        yield f"versions differ: {differ}"


def _different(first: Doc, second: Doc, names: tuple[str, ...]) -> str:
    found = [(name, first.get(name), second.get(name)) for name in names]
    return ", ".join(f"{name} {_brief(a)} / {_brief(b)}" for name, a, b in found if a != b)


def _brief(value: object) -> str:
    return "none" if value is None else str(value)[:40]


def _cases(first: Doc, second: Doc) -> Iterator[str]:
    # A single run is a pair whatever it was, and a search chooses its rates itself.
    if len(first["runs"]) == len(second["runs"]) == 1 or (first["knee"] and second["knee"]):
        return
    paired = {id(run) for pair in pairs(first, second) for run in (pair.first, pair.second)}
    for name, found in (("A", first), ("B", second)):
        alone = [run["label"] for run in found["runs"] if id(run) not in paired]
        if alone:
            yield f"only in {name}: {listed(alone, 5)}"


def _knees(first: Doc, second: Doc) -> Iterator[str]:
    a, b, ratio = first["knee"], second["knee"], knees(first, second)
    if not a or not b:
        return
    bounds = [f"{found['p99_bound_ms']:g} ms" for found in (a, b)]
    if ratio is not None:
        yield f"knee of a P99 within {bounds[0]}: {a['rate']:g}/s in A, {b['rate']:g}/s in B ({ratio:.3f}x)"
    elif bounds[0] != bounds[1]:
        yield f"the knees are of different bounds: a P99 within {bounds[0]} in A, {bounds[1]} in B"
    else:
        yield from (f"no knee in {name}" for name, found in (("A", a), ("B", b)) if found["rate"] is None)


def _interrupted(first: Doc, second: Doc) -> Iterator[str]:
    for name, found in (("A", first), ("B", second)):
        if found["interrupted"]:
            yield f"{name} was interrupted"
