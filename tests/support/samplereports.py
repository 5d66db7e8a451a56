"""Reports of conversions that were never run: every state a report page has to show, with figures chosen by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from converters.gates import Gate, OutputParity
from converters.report import (
    Attempt,
    Coverage,
    Histogram,
    LayerCost,
    LayerError,
    MixedSearch,
    Pinned,
    Refusal,
    Report,
    Source,
    TargetRun,
)
from converters.truth import Facts
from edged.bundle import Calibration, InputRange, TensorSpec
from edged.engines.tflite_nodes import Kind, Node

LITERT, TFLITE = "ai-edge-litert 2.3.0", "tflite-runtime 2.14.0"
VERSIONS = {"tensorflow": "2.21.0", "keras": "3.15.1", "ai-edge-litert": "2.3.0", "edged": "0.3.0"}
# Markup, quotes, a turned direction, an escape of a terminal, a script's end, nothing at all.
HOSTILE = "</script><img src=x onerror=alert(1)>\"'\u202egnp.exe\x1b[2J&amp;"
LONG = "StatefulPartitionedCall/functional_1/block_12_depthwise_separable/batch_normalization_17/FusedBatchNormV3"


def node(index: int, op: str, kind: Kind, version: int = 1, *, custom: bool = False) -> Node:
    """One op; its output is called after its place."""
    return Node(index, op, version, kind, custom, f"model/{op.lower()}_{index}")


def facts(nodes: Sequence[Node], *, integer: bool = True, inputs: Sequence[str] = ("x",)) -> Facts:
    """A file of these ops with inputs of 64x6 and an output `y` of 4 scores."""
    dtype: Literal["int8", "float32"] = "int8" if integer else "float32"
    scale = 0.05 if integer else 0.0
    counts = {op: sum(n.op == op for n in nodes) for op in sorted({n.op for n in nodes})}
    return Facts(
        signature="serving_default",
        inputs=tuple(TensorSpec(name, dtype, (1, 64, 6), scale, -3 if integer else 0) for name in inputs),
        outputs=(TensorSpec("y", dtype, (1, 4), 1 / 256 if integer else 0.0, -128 if integer else 0),),
        ops={op: max(n.version for n in nodes if n.op == op) for op in counts},
        dtypes={dtype: (34, 6_337), "int32": (9, 268)},
        integer_share=sum(n.kind in ("int8", "int16") for n in nodes) / len(nodes),
        float_ops=tuple(sorted({n.op for n in nodes if n.kind in ("float", "hybrid")})),
        clamped=(), weightless=False, stateful=False, nodes=tuple(nodes), counts=counts,
        int8_bytes_share=0.96 if integer else 0.0,
    )  # fmt: skip


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


def targets(*parities: OutputParity, p50_us: float = 212.0) -> tuple[TargetRun, ...]:
    """Both runtimes with all there is on a PC, and one that is not here."""
    good = all(gate.passed for item in parities for gate in item.gates)
    state: Literal["passed", "refused"] = "passed" if good else "refused"
    return (
        TargetRun(LITERT, "reference", state, "", parities, p50_us * 1.4),
        TargetRun(LITERT, "xnnpack", state, "", parities, p50_us),
        TargetRun(TFLITE, "reference", state, "", parities, p50_us * 2.7),
        TargetRun("ai-edge-litert 2.1.0", "", "not run", "not installed here; by its table of ops it loads this file"),
    )


NET: Sequence[tuple[str, int]] = (
    ("EXPAND_DIMS", 1), ("CONV_2D", 3), ("RESHAPE", 1), ("EXPAND_DIMS", 1), ("MAX_POOL_2D", 2), ("RESHAPE", 1),
    ("EXPAND_DIMS", 1), ("CONV_2D", 3), ("CONV_2D", 3), ("ADD", 2), ("RESHAPE", 1), ("MEAN", 2),
    ("FULLY_CONNECTED", 4), ("FULLY_CONNECTED", 4), ("SOFTMAX", 2),
)  # fmt: skip
SHAPES = ("EXPAND_DIMS", "RESHAPE")


def small_net(kind: Kind = "int8") -> list[Node]:
    """A convolutional net of 15 ops."""
    return [node(i, op, "other" if op in SHAPES else kind, version) for i, (op, version) in enumerate(NET)]


def covered(nodes: Sequence[Node]) -> tuple[Coverage, ...]:
    """XNNPACK measured, an Edge TPU by its document, a GPU that cannot serve at all."""
    taken = [0 if i < 10 else (-1 if n.op == "RESHAPE" else 1) for i, n in enumerate(nodes)]
    edge = [-1 if n.op == "EXPAND_DIMS" else 0 for n in nodes]
    return (
        Coverage("xnnpack", "measured", LITERT, sum(t >= 0 for t in taken), len(nodes), 2,
                 (Refusal("RESHAPE", 1, "dynamic output"),), tuple(taken)),
        Coverage("edgetpu", "documented", "Edge TPU compiler, table of supported operations", edge.count(0),
                 len(nodes), 1, (Refusal("EXPAND_DIMS", 3, "output of rank 5 is not taken"),), tuple(edge)),
        Coverage("gpu", "documented", "TFLite GPU delegate, supported ops", 0, len(nodes), 0, (), (),
                 "it takes no int8 inputs"),
    )  # fmt: skip


SOURCE = Source(
    "har_saved", "SavedModel", 66_120, "serving_default", ("serve", "serving_default"), ("serve",), ("serve", "train"),
    (Pinned("x", 0, 1, "a batch of one: XNNPACK takes nothing of a graph with open dimensions"),),
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
        ("calibration has 640 samples, evaluation 540: they share no sample",), VERSIONS,
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
    costs = tuple(
        LayerCost(f"conv2d_{i}/BiasAdd", "CONV_2D", 0.6 + 0.3 / (i + 1), 0.3 / (i + 1), 4096 * (i + 1), i < 2)
        for i in range(14)
    )
    mixed = Attempt(
        "mixed", "passed", (), 139_000, facts(nodes, integer=False), targets(*good, p50_us=18_400.0), covered(nodes),
        tuple(histogram(name, width=w) for name, w in (("contour", 0.31), ("note", 0.22), ("onset", 0.42))),
        (), MixedSearch("worst f1", 17, 60, 0.59, 0.957, costs), ("SQRT was kept float: version 2 is not everywhere",),
    )  # fmt: skip
    why = ("output 'onset': f1 is 0.59, at least 0.95 is asked",
           "output 'contour': f1 is 0.727, at least 0.95 is asked",
           "output 'note': f1 is 0.937, at least 0.95 is asked")  # fmt: skip
    none, half = (targets(*(parity(n, v, 1.0, metric="f1") for n in ("contour", "note", "onset")), p50_us=p)
                  for v, p in ((1.0, 52_000.0), (0.9995, 51_000.0)))  # fmt: skip
    attempts = (
        Attempt("none", "passed", (), 232_456, None, none),
        Attempt("float16", "passed", (), 155_404, None, half),
        Attempt("dynamic", "refused", ("tflite-runtime 2.14.0 cannot load it: FULLY_CONNECTED version 12",), 102_408),
        Attempt("int8", "refused", why, 120_472, None, targets(*bad, p50_us=16_900.0)),
        Attempt("int16x8", "died", ("the converter died of signal 11 (SIGSEGV)",)),
        mixed,
    )
    source = replace(SOURCE, path="nmp", size=758_000, pinned=())
    calibration = Calibration("clips.npz", 64, (InputRange("audio", -0.83, 0.91),))
    return Report(
        "basic-pitch", 1, "auto", "mixed", source, attempts, calibration, {"audio": 0.013}, "held out of clips.npz", 48,
        (), ("fewer than 100 calibration samples",), VERSIONS,
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
    reasons = (
        "output 'onset': f1 is 0.59, at least 0.95 is asked", "output 'onset': cosine is 0.88, at least 0.95 is asked",
        "output 'contour': f1 is 0.727, at least 0.95 is asked", "output 'extra': the same answer for every sample",
    )  # fmt: skip
    attempt = Attempt(
        "int8", "refused", reasons, 120_472, facts(nodes), targets(*bad), covered(nodes),
        (histogram("onset", width=0.6), histogram("note"), histogram("contour", width=0.4)), layers,
    )  # fmt: skip
    return Report(
        "basic-pitch", 1, "int8", "", SOURCE, (attempt,), Calibration("clips.npz", 64, (InputRange("x", -1.0, 1.0),)),
        {"x": 0.21}, "held out of clips.npz", 48,
        ("use --quantize mixed: it keeps the few layers float that cause this",
         "use --quantize float16: 155,404 bytes, passed every gate"),
        ("fewer than 100 calibration samples",), VERSIONS,
    )  # fmt: skip


def died() -> Report:
    """A recurrent net that kills the converter with int8."""
    reason = "the converter died of signal 11 (SIGSEGV) while it calibrated"
    attempt = Attempt("int8", "died", (reason,))
    return Report(
        "sleep", 2, "int8", "", SOURCE, (attempt,), Calibration("nights.npz", 120, (InputRange("x", -4.0, 4.0),)), {},
        "", 0, ("these modes work: none, float16, dynamic",), (), VERSIONS,
    )  # fmt: skip


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
    coverage = (
        Coverage("xnnpack", "measured", LITERT, sum(p >= 0 for p in pieces), 400, 20, (Refusal("SQRT", 40),), pieces),
        Coverage(
            "testnpu",
            "measured",
            LITERT,
            200,
            400,
            1,
            (Refusal("DIV", 20),),
            tuple(0 if i < 200 else -1 for i in range(400)),
        ),
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


ALL = {make.__name__: make for make in (passing, automatic, refused, died, long, weird, bare)}
