"""A run, or two beside each other, as text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from edged.bench import compare, knee_words
from edged.bench.document import Doc
from edged.bench.figure import milliseconds, per_second, times
from edged.latency import FEW
from edged.request import STAGES
from edged.shown import listed, size, table

HEAD = ("", "n", "asked/s", "ok/s", "errors", "missing", "P50", "P90", "P99", "P99.9", "max ms")
_KEYS = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
# So many samples a percentile needs; what has fewer is marked.
_NEEDS = {"p99_ms": FEW, "p999_ms": 10 * FEW}
FEW_MARK = "*"
_NAMES = {"rss_bytes": "RSS", "threads": "threads", "descriptors": "descriptors"}
_STRAYS = {
    "doubled": "answers came twice",
    "late": "answers came after they were given up",
    "unsent": "requests could not be sent",
    "unfinished": "requests were open when it ended",
}


def percentiles(found: Doc) -> list[str]:
    """Return P50, P90, P99, P99.9 and the maximum; those of too few samples with a mark."""
    return [milliseconds(found[key]) + (FEW_MARK if 0 < found["n"] < _NEEDS.get(key, 0) else "") for key in _KEYS]


def errors(run: Doc) -> str:
    """Return the errors by code."""
    return ", ".join(f"{count} {code}" for code, count in sorted(run["errors"].items())) or "0"


def names(runs: Sequence[Doc]) -> list[str]:
    """Return a name for each run: of its label what is not the same in all of them, the load where all is."""
    columns = _columns(runs)
    differ = [i for i, column in enumerate(columns) if len(set(column)) > 1] or [len(columns) - 1]
    found = [", ".join(run["parts"][i] for i in differ) for run in runs]
    # The same case more than once: a rate that was confirmed.
    return [name + (f" ({found[:i].count(name) + 1})" if found.count(name) > 1 else "") for i, name in enumerate(found)]


def common(runs: Sequence[Doc]) -> str:
    """Return what is the same in the labels of all runs, but for the load."""
    return ", ".join(column[0] for column in _columns(runs)[:-1] if len(set(column)) == 1)


def _columns(runs: Sequence[Doc]) -> list[tuple[str, ...]]:
    return list(zip(*(run["parts"] for run in runs), strict=True))


def row(run: Doc) -> list[str]:
    """Return a run's cells, as in `HEAD`."""
    lost = run["missing"] + run["unsent"]
    return [
        run["label"], f"{run['asked']:,}", per_second(run["sent_per_s"]), per_second(run["ok_per_s"]), errors(run),
        str(lost), *percentiles(run["latency"]),
    ]  # fmt: skip


def text(found: Doc) -> str:
    """Return everything a person reads at the end of a run."""
    runs = found["runs"]
    parts = [f"{where(found)}\n", _right([HEAD, *map(row, runs)])]
    parts += _details(runs[0]) if len(runs) == 1 else _brief(runs)
    if found["knee"] is not None:
        parts.append(f"knee: {knee_words.headline(found['knee'])}\n{knee_words.tried(found['knee'])}\n")
    if any(FEW_MARK in cell for run in runs for cell in row(run)):
        parts.append(f"{FEW_MARK} of fewer samples than that percentile needs\n")
    return "\n".join(parts)


def where(found: Doc) -> str:
    """Return what was asked: `press-07 at 127.0.0.1:1883, MQTT 5`."""
    target = found["target"]
    told = f"{target.get('device', 'a target')} at {target.get('broker', 'a broker')}"
    return told + (f", {target['protocol']}" if target.get("protocol") else "")


def _details(run: Doc) -> Iterator[str]:
    lines = [*facts(run), *_process(run)]
    if lines:
        yield "".join(f"{line}\n" for line in lines)
    counted = run.get("stages", {})
    if "stages" in counted:
        title = f"inside the device, ms ({counted['requests']:,} requests, warm-up included)\n"
        yield title + _right([("", "P50", "P90", "P99", "P99.9", "max", "mean"), *stage_rows(counted)])


def _brief(runs: Sequence[Doc]) -> Iterator[str]:
    lines = [f"{line}\n" for line in said(runs, facts)]
    if lines:
        yield "".join(lines)
    told = [
        [name, *_means(run)] for name, run in zip(names(runs), runs, strict=True) if "stages" in run.get("stages", {})
    ]
    if told:
        head = ("", *STAGES, "network + client", "CPU")
        title = "mean ms by stage, and processor time of the device a request, warm-up included\n"
        yield title + _right([head, *told])


def said(runs: Sequence[Doc], tell: Callable[[Doc], Sequence[str]]) -> list[str]:
    """Return what is told of the runs, each line once, with the names of the runs it is told of."""
    if len(runs) == 1:
        return list(tell(runs[0]))
    found: dict[str, list[str]] = {}
    for name, run in zip(names(runs), runs, strict=True):
        for line in tell(run):
            found.setdefault(line, []).append(name)
    return [line if len(of) == len(runs) else f"{listed(of, 5)}: {line}" for line, of in found.items()]


def _means(run: Doc) -> list[str]:
    counted = run["stages"]
    means = [counted["stages"][name]["mean_ms"] for name in STAGES]
    return list(map(milliseconds, (*means, counted["rest_ms"], counted["cpu_ms_per_request"])))


def stage_rows(counted: Doc) -> list[list[str]]:
    """Return the stages' cells: percentiles and the mean; last the mean of what is outside the device."""
    found = counted["stages"]
    rows = [[name, *percentiles(found[name]), milliseconds(found[name]["mean_ms"])] for name in (*STAGES, "total")]
    rest = milliseconds(counted["rest_ms"])
    return [*rows, ["network + client", "", "", "", "", "", rest]]


def facts(run: Doc) -> list[str]:
    """Return what a row has no cell for, a line each."""
    return [*run["notes"], *_strays(run), *_idle(run), *_minutes(run), *_device(run)]


def _process(run: Doc) -> Iterator[str]:
    cpu_ms = run.get("stages", {}).get("cpu_ms_per_request")
    if cpu_ms:
        yield f"processor time of the device a request: {milliseconds(cpu_ms)} ms"
    ends = run["process"]["ends"]
    told = [f"{_NAMES[name]} {amount(name, first)} → {amount(name, last)}" for name, (first, last) in ends.items()]
    if told:
        yield f"device process, first and last sample: {', '.join(told)}"


def _strays(run: Doc) -> Iterator[str]:
    yield from (f"{run[key]:,} {words}" for key, words in _STRAYS.items() if run[key])


def _idle(run: Doc) -> Iterator[str]:
    after = run["followers"]
    if after is None:
        return
    first, then = run["latency"]["p50_ms"], after["p50_ms"]
    ratio = f", {first / then:.2f} times as long" if first and then else ""
    yield f"after idle P50 {milliseconds(first)} ms, back to back P50 {milliseconds(then)} ms{ratio}"


def _minutes(run: Doc) -> Iterator[str]:
    if run["minutes"] is None:
        return
    ends = [run["minutes"][name] for name in ("first", "last")]
    for key, word in (("p50_ms", "P50"), ("p99_ms", "P99")):
        first, last = (end[key] for end in ends)
        shown = f"{milliseconds(first)} ms, of the last {milliseconds(last)} ms"
        yield f"{word} of the first minute {shown}{ratio(first, last)}"


def ratio(first: float | None, last: float | None) -> str:
    """Return ` (1.02x)`, nothing where there is no ratio."""
    return f" ({last / first:.2f}x)" if first and last is not None else ""


def _device(run: Doc) -> Iterator[str]:
    counted = run.get("stages", {})
    if "why_not" in counted:
        yield f"no stages: {counted['why_not']}"
    if counted.get("others"):
        yield f"the device had other requesters meanwhile: it counted {counted['requests']:,} requests"


def amount(name: str, value: int) -> str:
    """Return a count, or bytes where the name says so."""
    return size(value) if name.endswith("_bytes") else f"{value:,}"


def comparison(first: Doc, second: Doc) -> str:
    """Return two runs beside each other; of what is not alike there is no ratio."""
    head = ("", "", *HEAD[6:], "ok/s")
    rows: list[Sequence[str]] = [head]
    for pair in compare.pairs(first, second):
        rows += [
            [pair.label, "A", *percentiles(pair.first["latency"]), per_second(pair.first["ok_per_s"])],
            ["", "B", *percentiles(pair.second["latency"]), per_second(pair.second["ok_per_s"])],
        ]
        if not pair.differs:
            rows.append(["", "B/A", *(times(value) for value in pair.ratios())])
    told = [f"A: {where(first)}", f"B: {where(second)}", *compare.remarks(first, second)]
    return "".join(f"{line}\n" for line in told) + ("\n" + _right(rows) if len(rows) > 1 else "")


def _right(rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table whose columns after the first are flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return table(
        [[row[0], *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))] for row in rows], ""
    )
