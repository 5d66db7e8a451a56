"""What a conversion tells on a terminal when it is over: tables for a person, one JSON document for a program."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence

from converters import compared, figures, reportjson
from converters.gates import OutputParity
from converters.layers import SAMPLES
from converters.pipeline import Result
from converters.report import NOT_RUN, Attempt, MixedSearch, Report, TargetRun
from converters.reportpage_words import takes, unproven
from edged.bundle import TensorSpec
from edged.engines.tflite_coverage import Coverage
from edged.shown import shape, table

_LAYERS = 8
_COSTS = 20
_NAMES = 6
_REASON = 100


def as_json(report: Report, result: Result | None) -> str:
    """Return every fact as one JSON document: the report, and the manifest of the bundle where there is one."""
    document = reportjson.document(report, timings=True)
    if result is not None:
        document |= {"bundle": str(result.path), "manifest": dataclasses.asdict(result.manifest)}
    return json.dumps(document, indent=2)


def as_text(result: Result) -> str:
    """Return the tables for a person."""
    report, shown = result.report, result.report.shown
    compared = f"compared with the SavedModel on {report.samples} samples ({report.evaluation}):\n"
    parts = [
        "\n".join(_head(result)),
        attempts(report) if len(report.attempts) > 1 else "",
        "\n".join(_tensors(result)),
        "\n".join(_truth(shown)),
        _table(_target_rows(shown.targets)),
        _table(_parity_rows(shown.targets), compared),
        "\n".join(mixed(shown)),
        _table(_coverage_rows(shown.coverage)),
        f"runs on: {', '.join(result.manifest.requirements.loaded_on)}",
    ]
    return "\n\n".join(filter(None, parts))


def refusal(report: Report) -> str:
    """Return the tables that say why no model may ship; each is followed by an empty line."""
    parts = [attempts(report) if len(report.attempts) > 1 else ""]
    parts += ["\n".join(mixed(attempt)) for attempt in report.attempts]
    return "".join(f"{part}\n\n" for part in [*parts, layers(report)] if part)


def attempts(report: Report) -> str:
    """Return the table of the modes that were tried."""
    timed = [_timed(attempt) for attempt in report.attempts]
    names = max(timed, key=len, default={})
    key = compared.deciding(report.attempts)
    rows = [("mode", "bytes", *(f"P50 µs, {name}" for name in names), f"worst {key}".rstrip(), "verdict")]
    for attempt, times in zip(report.attempts, timed, strict=True):
        size = f"{attempt.model_bytes:,}" if attempt.model_bytes else "-"
        cells = [times.get(name, "-") for name in names]
        rows.append((attempt.quantize, size, *cells, _worst(attempt, key), _verdict(report, attempt)))
    return _table(rows)


def _timed(attempt: Attempt) -> dict[str, str]:
    return {run.runtime: _time(run) for run in attempt.targets if run.delegate != "reference" and run.p50_us}


def _time(run: TargetRun) -> str:
    return f"{run.p50_us:,.0f}" if run.p50_us else "-"


def _worst(attempt: Attempt, key: str) -> str:
    found = compared.worst(attempt, key)
    return "-" if found is None else f"{found[0]:.4g} ({found[1]})"


def _verdict(report: Report, attempt: Attempt) -> str:
    if attempt.quantize == report.chosen:
        return "chosen"
    return attempt.state + (f": {_short(attempt.reasons[0])}" if attempt.reasons else "")


def _short(reason: str) -> str:
    line = (reason.splitlines() or [""])[0]
    return line if len(line) <= _REASON else line[: _REASON - 1] + "…"


def _head(result: Result) -> Iterator[str]:
    m, report = result.manifest, result.report
    before, after = report.source.size, report.shown.model_bytes
    yield f"{result.path}: {m.name} version {m.version}, {m.quantize}"
    if absent := unproven(report.shown.targets):
        yield f"not run here, judged by table alone: {', '.join(absent)}"
    yield f"size: {report.source.kind} {before:,} bytes, model {after:,} bytes{_times(before, after)}"
    for pinned in report.source.pinned:
        yield f"pinned: {pinned.input}, dimension {pinned.dimension} to {pinned.size}: {pinned.reason}"


def _times(before: int, after: int) -> str:
    if not before or not after:
        return ""
    times = max(before, after) / min(before, after)
    if times < 1.05:  # noqa: PLR2004  # with one digit that is no difference
        return ""
    return f" ({times:.1f} times {'smaller' if after < before else 'larger'})"


def _tensors(result: Result) -> Iterator[str]:
    m = result.manifest
    rows = [*_tensor_rows(m.inputs, "input"), *_tensor_rows(m.outputs, "output")]
    yield _table([("", "name", "dtype", "shape", "client"), *rows])
    if m.postprocess.top_k:
        of = f" of {m.postprocess.output!r}" if m.postprocess.output else ""
        yield f"classes: JSON and CBOR answers list the best {m.postprocess.top_k}{of}"


def _tensor_rows(specs: Sequence[TensorSpec], kind: str) -> Iterator[tuple[str, ...]]:
    for spec in specs:
        yield kind, spec.name, spec.dtype, shape(spec.shape), spec.wire_dtype.name


def _truth(attempt: Attempt) -> Iterator[str]:
    facts = attempt.facts
    if facts is None:
        return
    constants = [(name, str(count), f"{size:,}") for name, (count, size) in facts.dtypes.items()]
    if constants:
        yield _table([("dtype", "tensors", "constant bytes"), *constants])
    left = f"; float: {', '.join(facts.float_ops)}" if facts.float_ops else ""
    ops = f"integer ops: {facts.integer_share:.0%}; " if facts.computes else ""
    yield f"{ops}int8 share of the constants: {facts.int8_bytes_share:.0%}{left}"


def mixed(attempt: Attempt) -> Iterator[str]:
    """Yield what the search for layers to keep float found, and what each layer costs; nothing for other modes."""
    search = attempt.mixed
    if search is None:
        return
    tried = f"{search.tried} of {search.budget} conversions"
    if attempt.state == "passed" and not search.costs and search.final == search.uniform:
        yield f"mixed precision, {tried}: int8 passes, no layer is kept float"
        return
    yield f"mixed precision, {tried}; {search.score}: int8 {_score(search.uniform)}, mixed {_score(search.final)}"
    if search.costs:
        yield _table(_cost_rows(search))
    if len(search.costs) > _COSTS:
        yield f"and {len(search.costs) - _COSTS} more, which cost less; the report has them all"


def _score(score: float) -> str:
    return "does not run" if score <= NOT_RUN else f"{score:.3g}"


def _cost_rows(search: MixedSearch) -> Iterator[tuple[str, ...]]:
    yield "layer", "op", "gained as float", "bytes more", "kept"
    for cost in search.costs[:_COSTS]:
        gained = "runs at all" if cost.score <= NOT_RUN else f"{cost.gained:+.3g}"
        yield cost.layer, cost.op, gained, f"{cost.extra_bytes:,}", "float" if cost.kept_float else "int8"


def layers(report: Report) -> str:
    """Return the layers that lose the accuracy, worst first; empty where they are not known."""
    rows = [("op", "number", "SNR dB", "largest error / value", "tensor")]
    for layer in report.shown.layers[:_LAYERS]:
        tensor = layer.tensor + (f" = output {layer.output}" if layer.output else "")
        rows.append((layer.op, str(layer.index), f"{layer.snr_db:.1f}", f"{layer.relative:.3g}", tensor))
    some = f"the first {SAMPLES} of " if report.samples > SAMPLES else ""
    return _table(rows, f"worst layers (on {some}{report.samples} samples, errors of the layers before included):\n")


def _target_rows(targets: Sequence[TargetRun]) -> Iterator[tuple[str, ...]]:
    yield "runtime", "delegate", "P50 µs", "verdict"
    for run in targets:
        yield run.runtime, run.delegate or "-", _time(run), run.state + (f": {_short(run.reason)}" * bool(run.reason))


def _parity_rows(targets: Sequence[TargetRun]) -> Iterator[tuple[str, ...]]:
    shown = _told([p for run in targets for p in run.outputs])
    yield "runtime", "delegate", "output", *(f"{name} (SavedModel)" if own else name for name, own in shown)
    for run in targets:
        for p in run.outputs:
            yield run.runtime, run.delegate, p.output, *(_figure(p, name) for name, _ in shown)


def _told(parities: Sequence[OutputParity]) -> list[tuple[str, bool]]:
    """Return the figures to show. The relative error says what SNR and largest error say, unless it is a gate."""
    gated = {gate.metric for p in parities for gate in p.gates}
    found = {name for p in parities for name in p.figures}
    return figures.columns(found - ({"relative"} - gated))


def _figure(p: OutputParity, name: str) -> str:
    if name not in p.figures:
        return "-"
    before = p.figures.get(figures.own(name))
    return f"{p.figures[name]:.5g}" + ("" if before is None else f" ({before:.5g})")


def _coverage_rows(rows: Sequence[Coverage]) -> Iterator[tuple[str, ...]]:
    yield "delegate", "", "takes", "parts", "left to the CPU"
    for row in rows:
        left = _some(list(dict.fromkeys(refusal.op for refusal in row.refused)))
        yield row.name, row.how, takes(row) or "-", str(row.partitions), row.reason or left


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _table(rows: Iterable[Sequence[str]], title: str = "") -> str:
    """Return the title and the table; nothing where there is no row below the head."""
    found = list(rows)
    return title + table(found, "").removesuffix("\n") if found[1:] else ""
