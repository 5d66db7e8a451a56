"""Reports of conversions that were never run: every state a report page has to show, with figures chosen by hand.

Reasons, notes, advice, delegates and states are in the words that the converter uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from support.samplefiles import facts, node, small_net

from converters.gates import Gate, OutputParity
from converters.report import (
    NOT_RUN,
    Attempt,
    Histogram,
    LayerCost,
    LayerError,
    MixedSearch,
    Pinned,
    Report,
    Source,
    TargetRun,
)
from edged.bundle import Calibration, InputRange
from edged.engines.tflite_coverage import Coverage, Refusal
from edged.engines.tflite_nodes import Kind, Node

LITERT, TFLITE = "ai-edge-litert 2.3.0", "tflite-runtime 2.14.0"
VERSIONS = {"numpy": "1.26.4", "python": "3.11.7", "tensorflow": "2.21.0"}
FEW = "clips.npz: only 64 samples; 100 or more calibrate well"
# Markup, quotes, a turned direction, an escape of a terminal, a script's end, nothing at all.
HOSTILE = "</script><img src=x onerror=alert(1)>\"'\u202egnp.exe\x1b[2J&amp;"
LONG = "StatefulPartitionedCall/functional_1/block_12_depthwise_separable/batch_normalization_17/FusedBatchNormV3"


def parity(output: str, agreement: float, cosine: float = 0.9991, *, metric: str = "agreement") -> OutputParity:
    """One output with two gates of .95; the other figures follow from nothing."""
    figures = {"max_abs": 0.0421, "relative": 0.0421, "cosine": cosine, "snr_db": 31.4, metric: agreement}
    return OutputParity(output, figures, (Gate(output, metric, agreement, 0.95), Gate(output, "cosine", cosine, 0.95)))


def histogram(output: str, bins: int = 41, width: float = 0.05, tall: int = 20_000) -> Histogram:
    """A bell with a long thin tail."""
    edges = tuple(width * (2 * i / bins - 1) for i in range(bins + 1))
    middles = [(a + b) / 2 / width for a, b in pairwise(edges)]
    return Histogram(
        output, edges, tuple(int(tall * math.exp(-60 * m * m)) + (1 if abs(m) > 0.7 else 0) for m in middles)
    )


def missed(*parities: OutputParity) -> str:
    """What the converter says of the gates that fail, in one sentence."""
    return "; ".join(str(gate) for item in parities for gate in item.gates if not gate.passed)


def targets(*parities: OutputParity, p50_us: float = 212.0) -> tuple[TargetRun, ...]:
    """Both runtimes as a device runs them, the first one's own kernels, and a runtime that is not here."""
    why = missed(*parities)
    state: Literal["passed", "refused"] = "refused" if why else "passed"
    return (
        TargetRun(LITERT, "default", state, why, parities, p50_us),
        TargetRun(TFLITE, "default", state, why, parities, p50_us * 2.7),
        TargetRun(LITERT, "reference", state, why, parities),
        TargetRun("ai-edge-litert 2.1.0", "", "not run", "has every op in the version that the file needs (by table)"),
    )


def covered(nodes: Sequence[Node]) -> tuple[Coverage, ...]:
    """XNNPACK measured, an Edge TPU by its document, a GPU that cannot serve at all."""
    taken = [0 if i < 10 else (-1 if n.op == "RESHAPE" else 1) for i, n in enumerate(nodes)]
    edge = [-1 if n.op == "EXPAND_DIMS" else 0 for n in nodes]
    rank, edition = "output of rank 5 (takes up to 4)", "compiler 16, runtime 14"
    left = (Refusal("EXPAND_DIMS", 2, "not in its table"), Refusal("RESHAPE", 2, rank), Refusal("EXPAND_DIMS", 1, rank))
    return (
        Coverage("xnnpack", "measured", LITERT, sum(t >= 0 for t in taken), len(nodes), 2, (Refusal("RESHAPE", 1),),
                 tuple(taken)),
        Coverage("edgetpu", "documented", f"Coral Edge TPU compiler, {edition}: https://coral.ai/docs/", edge.count(0),
                 len(nodes), 1, left, tuple(edge)),
        Coverage("gpu_tflite", "documented", "TFLite GPU delegate, 2026: https://ai.google.dev/edge/", 0, len(nodes), 0,
                 (Refusal("ADD", 1, "int8"),), (), "takes no op; ADD: int8"),
    )  # fmt: skip


SOURCE = Source(
    "har_saved", "SavedModel", 66_120, "serving_default", ("serve", "serving_default"), ("serve",), ("serve", "train"),
    (Pinned("x", 0, 1, "the batch, 1 unless --batch says otherwise; delegates want fixed sizes"),),
)  # fmt: skip


def passing() -> Report:
    """An int8 classifier of sensor windows that may ship."""
    nodes = small_net()
    attempt = Attempt(
        "int8", "passed", (), 16_944, facts(nodes), targets(parity("y", 0.9875)), covered(nodes), (histogram("y"),),
    )  # fmt: skip
    calibration = Calibration("train.npz", 640, (InputRange("x", -5.7, 6.2),))
    return Report(
        "har", 3, "int8", "int8", SOURCE, (attempt,), calibration, {"x": 0.00042}, "test.npz", 540, (),
        ("test.npz: 12 of the 540 samples that are compared calibrated too",), VERSIONS,
    )  # fmt: skip


def automatic() -> Report:
    """Six modes of a transcriber with three outputs; mixed is chosen, with the table of its search."""
    nodes = [replace(n, kind="float" if n.index in (7, 8) else n.kind) for n in small_net()]
    good = [
        parity("contour", 0.971, metric="f1"),
        parity("note", 0.988, metric="f1"),
        parity("onset", 0.957, metric="f1"),
    ]
    bad = [
        parity("contour", 0.727, 0.961, metric="f1"),
        parity("note", 0.937, metric="f1"),
        parity("onset", 0.59, 0.88, metric="f1"),
    ]
    costs = (
        LayerCost("nmp/log/add", "ADD", NOT_RUN, 1000.9, 1, kept_float=True),
        *(LayerCost(f"nmp/conv_{i}/Conv2D \u2026 nmp/conv_{i}/Relu ({i + 2} layers)", f"{i + 2}x CONV_2D",
                    -7.2 + i / 2, 7.5 - i / 2, 4096 * (i + 1), i < 2) for i in range(14)),
    )  # fmt: skip
    mixed = Attempt(
        "mixed", "passed", (), 139_000, facts(nodes, integer=False), targets(*good, p50_us=18_400.0), covered(nodes),
        tuple(histogram(name, width=w) for name, w in (("contour", 0.31), ("note", 0.22), ("onset", 0.42))),
        (), MixedSearch("worst margin to a gate", 17, 60, NOT_RUN, 0.1402, costs),
        ("these ops stay float: CONV_2D, SQRT",),
    )  # fmt: skip
    none, half = (targets(*(parity(n, v, 1.0, metric="f1") for n in ("contour", "note", "onset")), p50_us=p)
                  for v, p in ((1.0, 52_000.0), (0.9995, 51_000.0)))  # fmt: skip
    lacks = "does not load: Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'"
    silent = tuple(TargetRun(runtime, "default", "refused", lacks) for runtime in (LITERT, TFLITE))
    cannot = f"no installed runtime runs it: {LITERT}: {lacks}; {TFLITE}: {lacks}"
    attempts = (
        Attempt("none", "passed", (), 232_456, None, none),
        Attempt("float16", "passed", (), 155_404, None, half),
        Attempt("dynamic", "refused", (cannot,), 102_408, None, silent),
        Attempt("int8", "refused", (missed(*bad),), 120_472, None, targets(*bad, p50_us=16_900.0)),
        Attempt("int16x8", "died", ("the converter was killed by SIGSEGV while converting to int16x8",)),
        mixed,
    )
    source = replace(SOURCE, path="nmp", size=758_000, pinned=())
    calibration = Calibration("clips.npz", 64, (InputRange("audio", -0.83, 0.91),))
    return Report(
        "basic-pitch", 1, "auto", "mixed", source, attempts, calibration, {"audio": 0.013}, "clips.npz", 16,
        (), (FEW,), VERSIONS,
    )  # fmt: skip


def refused() -> Report:
    """Int8 that misses its gates on two of three outputs; errors layer by layer."""
    nodes = small_net()
    bad = [
        parity("note", 0.961, metric="f1"),
        parity("onset", 0.59, 0.88, metric="f1"),
        parity("contour", 0.727, 0.961, metric="f1"),
    ]
    layers = tuple(LayerError(n.index, n.op, n.tensor, 42.0 - 2.9 * n.index, 0.004 * (n.index + 1)) for n in nodes)
    layers = (replace(layers[-1], output="onset"), *reversed(layers[:-1]))
    stuck = "output 'extra': the same answer for every sample"
    runs = tuple(replace(run, reason=f"{run.reason}; {stuck}" if run.outputs else run.reason) for run in targets(*bad))
    attempt = Attempt(
        "int8", "refused", (f"{missed(*bad)}; {stuck}",), 120_472, facts(nodes), runs, covered(nodes),
        (histogram("onset", width=0.6), histogram("note"), histogram("contour", width=0.4)), layers,
    )  # fmt: skip
    return Report(
        "basic-pitch", 1, "int8", "", replace(SOURCE, size=758_000), (attempt,),
        Calibration("clips.npz", 64, (InputRange("x", -1.0, 1.0),)), {"x": 0.21}, "clips.npz", 16,
        ("is --calibration what the model will see, scaled as for training?",
         "--quantize auto tries every mode and measures each"),
        (FEW,), VERSIONS,
    )  # fmt: skip


def died() -> Report:
    """A recurrent net that kills the converter with int8; two other modes work."""
    attempts = (
        Attempt("int8", "died", ("the converter was killed by SIGSEGV while converting to int8",)),
        Attempt("none", "passed", (), 28_252, None, targets(parity("y", 1.0))),
        Attempt("float16", "passed", (), 28_116, None, targets(parity("y", 0.9996))),
    )
    return Report(
        "sleep", 2, "int8", "", SOURCE, attempts, Calibration("nights.npz", 120, (InputRange("x", -4.0, 4.0),)),
        {"x": 0.0}, "nights.npz", 24,
        ("--quantize none keeps every limit (28,252 bytes)", "--quantize float16 keeps every limit (28,116 bytes)"),
        (), VERSIONS,
    )  # fmt: skip


def labelled() -> Report:
    """An output of classes with labels and one of real numbers: every figure there is, in one row or another."""
    scores = OutputParity(
        "classes",
        {"accuracy": 0.90741, "accuracy_float": 0.91296, "agreement": 0.98148, "class_f1": 0.85714, "cosine": 0.99921,
         "snr_db": 27.907, "max_abs": 0.12527, "relative": 0.12684, "saturated": 0.00231},
        (Gate("classes", "agreement", 0.98148, 0.95), Gate("classes", "accuracy", 0.90741, 0.90296),
         Gate("classes", "cosine", 0.99921, 0.95)),
    )  # fmt: skip
    boxes = OutputParity(
        "detection_boxes",
        {"r2": 0.91234, "r2_part": 0.90123, "cosine": 0.99987, "snr_db": 35.112, "max_abs": 3.25031,
         "relative": 0.03451, "mae": 1.2345, "mae_float": 1.2101},
        (Gate("detection_boxes", "r2", 0.91234, 0.9), Gate("detection_boxes", "cosine", 0.99987, 0.95)),
    )  # fmt: skip
    attempt = replace(passing().attempts[0], targets=targets(scores, boxes))
    return replace(passing(), name="detector", attempts=(attempt,))


def fleet() -> Report:
    """Two runtimes that a person named: one passes, the other does not load the model; the mode had no effect."""
    first, second, own, _ = passing().attempts[0].targets
    refusal = "does not load: Didn't find op for builtin opcode 'FULLY_CONNECTED' version '12'"
    gone = TargetRun(second.runtime, "default", "refused", refusal)
    attempt = replace(
        passing().attempts[0], quantize="dynamic", state="refused", reasons=(f"{TFLITE}: {refusal}",),
        facts=replace(facts(small_net("float"), integer=False), effect=False), targets=(first, gone, own),
        coverage=(Coverage("xnnpack", "measured", TFLITE, 0, 15, 0, (), (), refusal), *passing().attempts[0].coverage),
    )  # fmt: skip
    return replace(passing(), quantize="dynamic", chosen="", attempts=(attempt,))


def nothing() -> Report:
    """No mode of `auto` may ship: dynamic is the nearest, float16 does not run everywhere, int8 is not made."""
    near, far = parity("y", 0.93), parity("y", 0.41, 0.7)
    gone = "was killed by SIGSEGV while running the model on tflite-runtime"
    half = (*targets(far)[:1], TargetRun(TFLITE, "default", "refused", gone))
    attempts = (
        Attempt("float16", "refused", (f"{LITERT}: {missed(far)}", f"{TFLITE}: {gone}"), 33_000, None, half),
        Attempt("dynamic", "refused", (missed(near),), 17_500, facts(small_net()), targets(near)),
        Attempt("int8", "refused", ("output 'y' is float32, asked was int8",)),
    )
    return replace(passing(), quantize="auto", chosen="", attempts=attempts, warnings=())


def long() -> Report:
    """400 ops that change between int8 and float, in many partitions, and 30 outputs with long names."""
    pattern: Sequence[tuple[str, Kind, int]] = (
        ("CONV_2D", "int8", 7), ("DEPTHWISE_CONV_2D", "int8", 4), ("ADD", "int8", 1), ("DEQUANTIZE", "other", 1),
        ("SQRT", "float", 2), ("DIV", "float", 1), ("QUANTIZE", "other", 1), ("FULLY_CONNECTED", "hybrid", 1),
        ("RESHAPE", "other", 2),
    )  # fmt: skip
    kinds = [(op, kind) for op, kind, many in pattern for _ in range(many)]
    nodes = [node(i, *kinds[i % len(kinds)]) for i in range(400)]
    pieces = tuple(-1 if n.kind in ("float", "hybrid") else n.index // len(kinds) for n in nodes)
    half = tuple(0 if i < 200 else -1 for i in range(400))
    coverage = (
        Coverage("xnnpack", "measured", LITERT, sum(p >= 0 for p in pieces), 400, 20, (Refusal("SQRT", 40),), pieces),
        Coverage("testnpu", "measured", LITERT, 200, 400, 1, (Refusal("DIV", 20),), half),
    )
    outputs = [parity(f"{LONG}:{i}", 0.999 - 0.001 * i) for i in range(30)]
    attempt = Attempt("int8", "passed", (), 9_876_543, facts(nodes), targets(*outputs), coverage,
                      tuple(histogram(item.output) for item in outputs[:4]))  # fmt: skip
    return replace(passing(), name="long", attempts=(attempt,), source=replace(SOURCE, path=LONG))


def weird() -> Report:
    """Every text that a model or a file may bring is hostile, and figures are no numbers."""
    nodes = [node(0, HOSTILE, "float", custom=True), node(1, "ADD", "int8")]
    item = OutputParity(HOSTILE, {"cosine": math.nan, HOSTILE: 1.0}, (Gate(HOSTILE, "cosine", math.nan, 0.95),))
    attempt = Attempt(
        "int8", "refused", (HOSTILE * 12,), 812, facts(nodes, inputs=(HOSTILE,)),
        (TargetRun(HOSTILE, HOSTILE, "refused", HOSTILE, (item,)),),
        (Coverage(HOSTILE, "measured", HOSTILE, 1, 2, 1, (Refusal(HOSTILE, 1, HOSTILE),), (-1, 0)),),
        (Histogram(HOSTILE, (0.0, 0.0), (12,)), Histogram("nan", (0.0, math.nan), (1,))),
        (LayerError(0, HOSTILE, HOSTILE, -math.inf, math.nan),),
        MixedSearch(HOSTILE, 1, 1, math.nan, 0.0, (LayerCost(HOSTILE, HOSTILE, 0.0, 0.0, 0, kept_float=True),)),
        (HOSTILE,),
    )  # fmt: skip
    source = Source(HOSTILE, HOSTILE, 0, HOSTILE, (HOSTILE, "b"), (HOSTILE,), (), (Pinned(HOSTILE, 0, 1, HOSTILE),))
    return Report(
        HOSTILE, 1, "int8", "", source, (attempt,), Calibration(HOSTILE, 1, (InputRange(HOSTILE, 0.0, 0.0),)),
        {HOSTILE: math.nan}, HOSTILE, 1, (HOSTILE,), (HOSTILE,), {HOSTILE: HOSTILE},
    )  # fmt: skip


def bare() -> Report:
    """Float, nothing but a size: no calibration, no evaluation, no coverage."""
    attempt = Attempt("none", "passed", (), 66_000)
    return Report("bare", 1, "none", "none", replace(SOURCE, pinned=()), (attempt,))


ALL = {make.__name__: make for make in (passing, automatic, refused, died, labelled, fleet, nothing, long, weird, bare)}
