"""The report page's tables of facts: proof on every target, coverage, what is in the file, where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from converters import figures
from converters.gates import OutputParity
from converters.report import Attempt, Report, Source, TargetRun
from converters.reportpage_html import Html, el, fold, folded, join, lines, name, passed, section, table
from converters.reportpage_words import NONE, TIMES, count, metric, number, percent, takes, time, where
from converters.reportpage_worst import parts
from edged.bundle import TensorSpec
from edged.engines.tflite_coverage import Coverage
from edged.shown import size


def parity(report: Report, *, timings: bool) -> Html:
    """Return every output on every target, and every target's state."""
    attempt = report.shown
    states = _states(attempt, timings=timings)
    told = "default: as a device runs it, XNNPACK where it takes the ops; reference: the runtime's own kernels alone."
    measured = f" Every figure is of all {count(report.samples, 'sample')}." if report.samples else ""
    return section("Proof, target by target", el("p", told + measured) if states else "", states, _figures(attempt))


def _states(attempt: Attempt, *, timings: bool) -> Html:
    head = ["runtime", "delegate", "state", *(["median time"] if timings else []), "what is known"]
    rows = [_state(run, timings=timings) for run in attempt.targets]
    return folded("Targets", head, rows, numbers=(3,) if timings else (), stacked=True)


def _state(run: TargetRun, *, timings: bool) -> list[str]:
    state = "○ not run" if run.state == "not run" else passed(run.state == "passed", ("passed", "refused"))
    timed = [time(run.p50_us) or NONE] if timings else []
    return [run.runtime, run.delegate or NONE, state, *timed, _known(run)]


def _known(run: TargetRun) -> str:
    """Return a target's reason; several missed limits are counted, for the table of figures shows them as well."""
    missed = [gate for item in run.outputs for gate in item.gates if not gate.passed]
    said = parts(run.reason)
    return (
        fold(f"misses {count(len(missed), 'limit')}", lines(said)) if missed and len(said) > 1 else run.reason or NONE
    )


def _figures(attempt: Attempt) -> Html:
    """Return a table for each target, all with the same columns."""
    shown = figures.columns(key for run in attempt.targets for item in run.outputs for key in item.figures)
    head = ("output", "verdict", *(f"{metric(key)} (SavedModel)" if own else metric(key) for key, own in shown))
    keys = [key for key, _ in shown]
    return join(
        folded(
            f"Outputs on {where(run)}",
            head,
            [_output(item, keys) for item in run.outputs],
            numbers=range(2, 2 + len(keys)),
        )
        for run in attempt.targets
    )


def _output(item: OutputParity, keys: Sequence[str]) -> list[str]:
    return [name(item.output), passed(all(gate.passed for gate in item.gates)), *(_cell(item, key) for key in keys)]


def _cell(item: OutputParity, key: str) -> str:
    if key not in item.figures:
        return NONE
    own = item.figures.get(figures.own(key))
    return number(item.figures[key]) + ("" if own is None else f" ({number(own)})")


def coverage(attempt: Attempt) -> Html:
    """Return how much of the graph each delegate takes, and what it leaves."""
    head = ("delegate", "takes", "partitions", "known by", "leaves to the CPU")
    told = (
        "Measured: the model was loaded here with the delegate. Documented: its table of ops was looked at; that "
        "tells how many it takes at most, the delegate itself may take less."
    )
    rows = [_covered(item) for item in attempt.coverage]
    listed = folded("Coverage", head, rows, numbers=(2,), stacked=True)
    return section("Delegates", el("p", told), listed) if rows else Html()


def _covered(item: Coverage) -> list[str]:
    amount = takes(item)
    share = f"{amount} ({percent(item.taken / item.total)})" if amount else NONE
    known = join([el("strong", item.how), f": {item.source}"])
    left = [*([item.reason] if item.reason else []), *_left(item)]
    return [item.name, share, str(item.partitions), known, lines(left) if len(left) > 1 else "".join(left) or NONE]


def _left(item: Coverage) -> Iterator[str]:
    """Yield a line for each reason, with all ops that are left for it."""
    grouped: dict[str, list[str]] = {}
    for refusal in item.refused:
        grouped.setdefault(refusal.reason, []).append(f"{refusal.op} {TIMES}{refusal.count}")
    for reason, ops in grouped.items():
        yield f"{reason}: {', '.join(ops)}" if reason else ", ".join(ops)


def content(attempt: Attempt) -> Html:
    """Return what is in the file: tensors, dtypes, ops with their versions, and where it loads."""
    facts = attempt.facts
    if facts is None:
        return Html()
    tensors = [_tensor("input", spec) for spec in facts.inputs] + [_tensor("output", spec) for spec in facts.outputs]
    dtypes = [[key, f"{amount:,}", size(held)] for key, (amount, held) in facts.dtypes.items()]
    return section(
        "What is in the file",
        lines(list(_truths(attempt))),
        folded(
            "Inputs and outputs", ("name", "side", "dtype", "shape", "scale", "zero point"), tensors, numbers=(4, 5)
        ),
        _ops(attempt),
        folded("Dtypes", ("dtype", "tensors", "constants"), dtypes, numbers=(1, 2)),
    )


def _truths(attempt: Attempt) -> Iterator[str]:
    facts = attempt.facts
    if facts is None:
        return
    if facts.computes:
        yield f"{percent(facts.integer_share)} of the ops work on whole numbers only."
    yield f"{percent(facts.int8_bytes_share)} of the bytes of constants have 8 bits or less a value."
    if not facts.effect:
        yield f"No effect: the file holds nothing of the kind that {attempt.quantize} makes."
    for words, names in (
        ("Float ops", facts.float_ops),
        ("Ops of TensorFlow itself, which need the Flex delegate", facts.flex_ops),
        ("Custom ops, which a runtime does not bring along", facts.custom_ops),
        ("Open shapes, shown with 1", facts.open_shapes),
        ("Constants beyond what float16 holds", facts.clamped),
        ("Random ops, so answers differ from run to run", facts.random_ops),
    ):
        if names:
            yield f"{words}: {', '.join(names)}."
    yield (
        "It keeps state from one inference to the next." if facts.stateful else "It keeps no state between inferences."
    )
    loaded = sorted({run.runtime for run in attempt.targets if run.outputs or run.state == "passed"})
    if loaded:
        yield f"Loads on, proven by loading: {', '.join(loaded)}."


def _ops(attempt: Attempt) -> Html:
    if attempt.facts is None:
        return Html()
    facts = attempt.facts
    own = {*facts.custom_ops, *facts.flex_ops}
    rows = [
        [join([name(op), " (not of TFLite)" if op in own else ""]), str(version), str(facts.counts.get(op, 0))]
        for op, version in facts.ops.items()
    ]
    head = ("op", "version", "how many")
    return folded("Ops, each with the version the file asks for", head, rows, numbers=(1, 2))


def _tensor(side: str, spec: TensorSpec) -> list[str]:
    scale = [number(spec.scale), str(spec.zero_point)] if spec.scale else [NONE, NONE]
    return [name(spec.name), side, spec.dtype, TIMES.join(map(str, spec.shape)) or "scalar", *scale]


def origin(report: Report) -> Html:
    """Return what was converted, which choices were made, and with what."""
    source = report.source
    pinned = [[name(p.input), str(p.dimension), str(p.size), p.reason] for p in source.pinned]
    versions = [[key, report.versions[key]] for key in sorted(report.versions)]
    return section(
        "Where it came from",
        _facts(report, source),
        table("Dimensions that were pinned", ("input", "dimension", "size", "why"), pinned, numbers=(1, 2)),
        table("Versions", ("package", "version"), versions),
    )


def _facts(report: Report, source: Source) -> Html:
    pairs = [
        ("Source", f"{source.path}, {source.kind}, {size(source.size)}"),
        ("Signature", _chosen(source.signature, source.signatures)),
        ("Tags", _chosen(", ".join(source.tags), source.tag_sets)),
        ("Evaluated on", f"{report.evaluation}, {count(report.samples, 'sample')}" if report.evaluation else ""),
        ("Calibrated on", report.calibration.source),
    ]
    return el("dl", *(join([el("dt", key), el("dd", value)]) for key, value in pairs if value), class_="facts")


def _chosen(chosen: str, existing: Sequence[str]) -> str:
    others = [item for item in existing if item != chosen]
    return f"{chosen} (there is also {', '.join(others)})" if others else chosen


def warnings(report: Report) -> Html:
    """Return the warnings, and what there is to know of the file; the first screen leads here."""
    told = section("Warnings and notes", lines([*report.warnings, *report.shown.notes]))
    return el("div", told, id="warnings") if told else Html()
