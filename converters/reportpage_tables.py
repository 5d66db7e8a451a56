"""The report page's tables of facts: proof on every target, coverage, what is in the file, where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from converters.report import Attempt, Coverage, Report, Source, TargetRun
from converters.reportpage_html import Html, el, folded, join, lines, name, section, table
from converters.reportpage_verdict import passed
from converters.reportpage_words import NONE, TIMES, count, metric, number, percent, proofs, size, time, where
from edged.bundle import TensorSpec

# Figures in the order a person looks for them; what else there is follows.
_ORDER = (
    "agreement",
    "f1",
    "accuracy",
    "accuracy_float",
    "mae",
    "mae_float",
    "equal",
    "cosine",
    "snr_db",
    "max_abs",
    "relative",
)


def parity(attempt: Attempt, *, timings: bool) -> Html:
    """Return every output on every target, and every target's state."""
    return section("Proof, target by target", _states(attempt, timings=timings), _figures(attempt))


def _states(attempt: Attempt, *, timings: bool) -> Html:
    head = ["runtime", "delegate", "state", *(["median time"] if timings else []), "what is known"]
    rows = [_state(run, timings=timings) for run in attempt.targets]
    return folded("Targets", head, rows, numbers=(3,) if timings else ())


def _state(run: TargetRun, *, timings: bool) -> list[str]:
    state = "○ not run" if run.state == "not run" else passed(run.state == "passed", ("passed", "refused"))
    return [run.runtime, run.delegate, state, *([time(run.p50_us) or NONE] if timings else []), run.reason or NONE]


def _figures(attempt: Attempt) -> Html:
    found = list(proofs(attempt))
    keys = {key for _, item in found for key in item.figures}
    order = sorted(keys, key=lambda key: (_ORDER.index(key) if key in _ORDER else len(_ORDER), key))
    rows = [
        [where(run), name(item.output), passed(all(gate.passed for gate in item.gates)),
         *(number(item.figures[key]) if key in item.figures else NONE for key in order)]
        for run, item in found
    ]  # fmt: skip
    head = ("target", "output", "verdict", *map(metric, order))
    return folded("Outputs on each target", head, rows, numbers=range(3, 3 + len(order)))


def coverage(attempt: Attempt) -> Html:
    """Return how much of the graph each delegate takes, and what it leaves."""
    head = ("delegate", "takes", "partitions", "known by", "leaves to the CPU")
    told = "Measured: the model was loaded here with the delegate. Documented: its table of ops was looked at."
    rows = [_covered(item) for item in attempt.coverage]
    return section("Delegates", el("p", told), folded("Coverage", head, rows, numbers=(2,))) if rows else Html()


def _covered(item: Coverage) -> list[str]:
    share = f"{item.taken} of {item.total} ops ({percent(item.taken / item.total)})" if item.total else NONE
    left = [f"{r.op} {TIMES}{r.count}{f': {r.reason}' if r.reason else ''}" for r in item.refused]
    left = [*([item.reason] if item.reason else []), *left]
    known = join([el("strong", item.how), f": {item.source}"])
    return [item.delegate, share, str(item.partitions), known, lines(left) if len(left) > 1 else "".join(left) or NONE]


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
        lines([join([note]) for note in attempt.notes]),
    )


def _truths(attempt: Attempt) -> Iterator[str]:
    facts = attempt.facts
    if facts is None:
        return
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
    """Return the warnings; the first screen leads here."""
    return el("div", section("Warnings", lines(report.warnings)), id="warnings") if report.warnings else Html()
