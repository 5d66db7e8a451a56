"""What a conversion tells on a terminal: stages on the way, tables at the end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import TextIO

from converters import reportjson
from converters.pipeline import Result
from converters.report import NOT_RUN, Attempt, Coverage, MixedSearch, Report, TargetRun
from edged.bundle import TensorSpec
from edged.commands import _text

_FIGURES = (
    "agreement", "f1", "equal", "cosine", "snr_db", "max_abs", "relative", "saturated", "accuracy_float", "accuracy",
    "mae_float", "mae",
)  # fmt: skip
# What tells most about an attempt in one number, in this order.
_HEADLINES = ("accuracy", "mae", "agreement", "f1", "equal", "cosine")
_LAYERS = 8
_NAMES = 6


class Progress:
    """One line that is overwritten, on a terminal; a line per stage where `plain`; else nothing."""

    def __init__(self, stream: TextIO, *, plain: bool) -> None:
        self._stream, self._plain = stream, plain
        self._live = stream.isatty() and not plain

    def stage(self, text: str) -> None:
        """Tell that a stage begins."""
        if self._plain:
            print(f"{text} …", file=self._stream, flush=True)
        elif self._live:
            self._stream.write(f"\r\033[K{text} …")
            self._stream.flush()

    def done(self) -> None:
        """Clear the line."""
        if self._live:
            self._stream.write("\r\033[K")
            self._stream.flush()


def as_json(report: Report, result: Result | None) -> str:
    """Return every fact as one JSON document: the report, and the manifest of the bundle where there is one."""
    document = reportjson.document(report, timings=True)
    if result is not None:
        document |= {"bundle": str(result.path), "manifest": dataclasses.asdict(result.manifest)}
    return json.dumps(document, indent=2)


def as_text(result: Result) -> str:
    """Return the tables for a person."""
    return "\n".join(_lines(result))


def attempts(report: Report) -> str:
    """Return the table of the modes that were tried."""
    names = [run.runtime for run in _longest(report.attempts) if run.delegate != "reference"]
    rows = [("mode", "bytes", *(f"P50 µs, {name}" for name in names), "figures", "verdict")]
    for attempt in report.attempts:
        times = {run.runtime: f"{run.p50_us:,.0f}" for run in attempt.targets if run.p50_us}
        size = f"{attempt.model_bytes:,}" if attempt.model_bytes else "-"
        cells = [times.get(name, "-") for name in names]
        rows.append((attempt.quantize, size, *cells, headline(attempt), _verdict(report, attempt)))
    return _table(rows)


def _longest(tried: Sequence[Attempt]) -> Sequence[TargetRun]:
    return max((attempt.targets for attempt in tried), key=len, default=())


def headline(attempt: Attempt) -> str:
    """Return the worst figure of the kind that says most: `f1 .951 (onset)`."""
    outputs = [(p.figures, p.output) for run in attempt.targets if run.delegate != "reference" for p in run.outputs]
    for metric in _HEADLINES:
        found = sorted((figures[metric], name) for figures, name in outputs if metric in figures)
        if found:
            value, name = found[-1 if metric == "mae" else 0]
            return f"{metric} {value:.4g} ({name})"
    return "-"


def _verdict(report: Report, attempt: Attempt) -> str:
    if attempt.quantize == report.chosen:
        return "chosen"
    return attempt.state + (f": {_short(attempt.reasons[0])}" if attempt.reasons else "")


def _short(reason: str) -> str:
    line = reason.splitlines()[0]
    return line if len(line) <= 100 else line[:99] + "…"  # noqa: PLR2004  # a table row on a wide terminal


def _lines(result: Result) -> Iterator[str]:
    m, report = result.manifest, result.report
    shown, before = report.shown, report.source.size
    yield f"{result.path}: {m.name} version {m.version}, {m.quantize}"
    yield f"size: {report.source.kind} {before:,} bytes, model {shown.model_bytes:,} bytes{_times(report)}"
    for pinned in report.source.pinned:
        yield f"pinned: {pinned.input}, dimension {pinned.dimension} to {pinned.size}: {pinned.reason}"
    yield ""
    if len(report.attempts) > 1:
        yield attempts(report)
        yield ""
    tensors = [*_tensor_rows(m.inputs, "input"), *_tensor_rows(m.outputs, "output")]
    yield _table([("", "name", "dtype", "shape", "client"), *tensors])
    yield ""
    if m.postprocess.top_k:
        yield f"classes: JSON and CBOR answers list the best {m.postprocess.top_k}{_of(m.postprocess.output)}"
        yield ""
    yield from _truth(shown)
    yield ""
    yield f"compared with the SavedModel on {report.samples} samples ({report.evaluation}):"
    yield _table(_parity_rows(shown.targets))
    yield ""
    if shown.mixed:
        yield from mixed(shown.mixed)
        yield ""
    yield _table(_coverage_rows(shown.coverage))
    yield ""
    yield f"runs on: {', '.join(m.requirements.loaded_on)}"


def _times(report: Report) -> str:
    return f" ({report.source.size / report.shown.model_bytes:.1f} times smaller)" if report.shown.model_bytes else ""


def _of(output: str) -> str:
    return f" of {output!r}" if output else ""


def _truth(attempt: Attempt) -> Iterator[str]:
    facts = attempt.facts
    if facts is None:
        return
    constants = [(name, str(count), f"{size:,}") for name, (count, size) in facts.dtypes.items()]
    yield _table([("dtype", "tensors", "constant bytes"), *constants])
    left = f"; float: {', '.join(facts.float_ops)}" if facts.float_ops else ""
    yield f"integer ops: {facts.integer_share:.0%}; int8 share of the constants: {facts.int8_bytes_share:.0%}{left}"


def mixed(search: MixedSearch) -> Iterator[str]:
    """Yield the search for layers to keep float: what each costs."""
    uniform = "does not run everywhere" if search.uniform <= NOT_RUN else f"{search.score} {search.uniform:.4g}"
    yield f"mixed precision: with every layer int8 {uniform}; as it is {search.score} {search.final:.4g} "
    yield f"({search.tried} conversions of at most {search.budget}):"
    rows = [("layer", "op", "gained", "extra bytes", "kept")]
    for cost in search.costs:
        kept = "float" if cost.kept_float else "int8"
        gained = "runs at all" if cost.score <= NOT_RUN else f"{cost.gained:+.4g}"
        rows.append((cost.layer, cost.op, gained, f"{cost.extra_bytes:,}", kept))
    yield _table(rows)


def layers(report: Report) -> str:
    """Return the layers that lose the accuracy, worst first; empty where they are not known."""
    if not report.shown.layers:
        return ""
    rows = [("op", "number", "SNR dB", "largest error", "tensor")]
    for layer in report.shown.layers[:_LAYERS]:
        rows.append((layer.op, str(layer.index), f"{layer.snr_db:.1f}", f"{layer.relative:.3g}", layer.tensor))  # noqa: PERF401
    return "worst layers (errors of the layers before included):\n" + _table(rows)


def _table(rows: Sequence[Sequence[str]]) -> str:
    return _text.table(rows, "").removesuffix("\n")


def _tensor_rows(specs: Sequence[TensorSpec], kind: str) -> Iterator[tuple[str, ...]]:
    for spec in specs:
        yield kind, spec.name, spec.dtype, _text.shape(spec.shape), spec.wire_dtype.name


def _parity_rows(targets: Sequence[TargetRun]) -> list[tuple[str, ...]]:
    parities = [p for run in targets for p in run.outputs]
    names = [name for name in _FIGURES if any(name in p.figures for p in parities)]
    rows = [("runtime", "delegate", "output", *names)]
    for run in targets:
        for p in run.outputs:
            figures = (f"{p.figures[name]:.5g}" if name in p.figures else "-" for name in names)
            rows.append((run.runtime, run.delegate, p.output, *figures))
    return rows


def _coverage_rows(rows: Sequence[Coverage]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = [("delegate", "", "takes", "parts", "left to the CPU")]
    for row in rows:
        told = f"measured, {row.source}" if row.how == "measured" else row.how
        left = _some(list(dict.fromkeys(refusal.op for refusal in row.refused)))
        takes = "-" if row.reason else f"{row.taken} of {row.total} ops"
        table.append((row.delegate, told, takes, str(row.partitions), row.reason or left))
    return table


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more
