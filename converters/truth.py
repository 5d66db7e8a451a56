"""Reading a model file back: what is really in it, and whether that is what was asked for.

The converter may return float where int8 was asked, or a model without its weights, and call both a success.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args, get_type_hints

import numpy as np

from converters.options import MODES
from converters.samples import InputInfo
from edged.bundle import TensorSpec
from edged.engines import tflite_file, tflite_nodes
from edged.engines.tflite_file import FileSignature, Graph, ModelFile, Tensor
from edged.engines.tflite_nodes import NARROW, Node
from edged.errors import BadDataError, InternalError

# Largest finite float16, which the converter writes for whatever is larger.
_HALF_MAX = 65504.0
_RANDOM_OPS = frozenset({
    "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL", "FlexRandomUniform", "FlexRandomUniformInt",
    "FlexRandomStandardNormal", "FlexTruncatedNormal", "FlexMultinomial", "FlexRandomShuffle", "FlexRandomGamma",
    "FlexRandomPoissonV2",
})  # fmt: skip
NO_FLEX = (
    "replace them in the model: no device runtime that pip installs has them; --allow-flex is for a runtime that you "
    "build with the Flex delegate"
)
_LEFT_FLOAT = "the converter left it so; --quantize mixed has float inputs and outputs, and integers between"
_CARRIED = get_args(get_type_hints(TensorSpec)["dtype"])
# Kinds of nodes that a quantizer could change.
_COMPUTING = ("int8", "int16", "float", "hybrid")
# Of an int8 model, the least share of computing ops that must work on integers only.
_INTEGER_SHARE = 0.5
# Of the constants' bytes, the share that may stay float32 without a word.
_FLOAT_SHARE = 0.5


@dataclass(frozen=True)
class Facts:
    """What the file holds. inputs, outputs: as the file declares them, scale 0 where not quantized.

    ops: name → highest version, of all that the file declares. dtypes: dtype → (tensors, bytes of constants).
    integer_share: share of integer ops among those that compute, in every graph; changes of dtype do not count.
    float_ops: names of the others. clamped: float16 constants with values at the end of the range, which may have
    been larger before.
    weightless: variables are read that nothing ever fills.
    nodes: the ops of the main graph. counts: op → how often, in every graph. kinds: kind of node → how often.
    int8_bytes_share: share of the constants' bytes with 8 bits or less for a value.
    custom_ops, flex_ops: what a runtime does not bring along, by name. open_shapes: inputs and outputs with open
    dimensions, which `inputs` and `outputs` show as 1. effect: whether the file has anything of the mode's kind.
    """

    signature: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    ops: Mapping[str, int]
    dtypes: Mapping[str, tuple[int, int]]
    integer_share: float
    float_ops: tuple[str, ...]
    clamped: tuple[str, ...]
    weightless: bool
    stateful: bool
    nodes: tuple[Node, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    kinds: Mapping[str, int] = field(default_factory=dict)
    int8_bytes_share: float = 0.0
    custom_ops: tuple[str, ...] = ()
    flex_ops: tuple[str, ...] = ()
    open_shapes: tuple[str, ...] = ()
    min_runtime_version: str = ""
    effect: bool = True

    @property
    def computes(self) -> bool:
        """Whether any op works on quantized or real numbers: without one, `integer_share` says nothing."""
        return any(self.kinds.get(kind, 0) for kind in _COMPUTING)

    @property
    def random_ops(self) -> tuple[str, ...]:
        """Ops that answer differently on every run."""
        return tuple(sorted(_RANDOM_OPS & set(self.ops)))


def read(model: bytes, quantize: str = "none") -> Facts:
    """Read a model file's facts; quantize: the mode that `effect` is about.

    Raises InternalError when it is damaged or holds no signature, BadDataError when an input or output is of a dtype
    that a bundle cannot carry, such as string.
    """
    try:
        file = tflite_file.read(model)
    except ValueError as exc:
        raise InternalError("converters", f"the converter wrote a file that {exc}") from exc
    if not file.signatures:
        raise InternalError("converters", "the converter wrote a model without a signature")
    return _facts(file, quantize)


def _facts(file: ModelFile, quantize: str) -> Facts:
    signature = file.signatures[0]
    graph = file.graphs[signature.graph]
    ops, kinds, dtypes = file.versions, tflite_nodes.kinds(file), tflite_nodes.dtypes(file)
    return Facts(
        signature=signature.key,
        inputs=_bound(signature.inputs, graph),
        outputs=_bound(signature.outputs, graph),
        ops=ops,
        dtypes=dtypes,
        integer_share=tflite_nodes.integer_share(kinds),
        float_ops=tflite_nodes.float_ops(file),
        clamped=_clamped(tflite_nodes.constants(file)),
        weightless="READ_VARIABLE" in ops and not {"CALL_ONCE", "ASSIGN_VARIABLE"} & set(ops),
        stateful=tflite_nodes.stateful(file),
        nodes=tflite_nodes.nodes(graph),
        counts=tflite_nodes.counts(file),
        kinds=kinds,
        int8_bytes_share=_share(dtypes, NARROW),
        custom_ops=tflite_nodes.custom_ops(file, flex=False),
        flex_ops=tflite_nodes.custom_ops(file, flex=True),
        open_shapes=tuple(name for name, index in _ends(signature) if -1 in graph.tensors[index].signature),
        min_runtime_version=file.min_runtime_version,
        effect=_effect(quantize, kinds, dtypes),
    )


def _ends(signature: FileSignature) -> list[tuple[str, int]]:
    return [*sorted(signature.inputs.items()), *sorted(signature.outputs.items())]


def _bound(names: Mapping[str, int], graph: Graph) -> tuple[TensorSpec, ...]:
    return tuple(_spec(name, graph.tensors[index]) for name, index in sorted(names.items()))


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    one = len(tensor.scales) == 1
    scale, zero_point = (tensor.scales[0], tensor.zero_points[0]) if one else (0.0, 0)
    if tensor.dtype not in _CARRIED:
        raise BadDataError("converted model", f"{name!r} is {tensor.dtype}, which no request or answer can carry")
    return TensorSpec(name, cast("Any", tensor.dtype), tensor.shape, scale, zero_point)


def _share(dtypes: Mapping[str, tuple[int, int]], wanted: frozenset[str]) -> float:
    """The share of the constants' bytes that have one of the wanted dtypes; 0 where there are no constants."""
    total = sum(size for _, size in dtypes.values())
    return sum(size for dtype, (_, size) in dtypes.items() if dtype in wanted) / total if total else 0.0


def _clamped(constants: Iterable[Tensor]) -> tuple[str, ...]:
    halves = {t.name: np.frombuffer(t.data, np.float16) for t in constants if t.dtype == "float16"}
    return tuple(sorted(name for name, a in halves.items() if not np.all(np.abs(a) < _HALF_MAX)))


def _effect(quantize: str, kinds: Mapping[str, int], dtypes: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the file has anything that the mode makes; True for a mode that makes nothing."""
    mode = MODES[quantize]
    if mode.needs_constants and mode.needs_constants.isdisjoint(dtypes):
        return False
    return not mode.needs_kind or kinds.get(mode.needs_kind, 0) > 0


def check(
    facts: Facts,
    inputs: tuple[InputInfo, ...],
    outputs: Mapping[str, str],
    quantize: str,
    *,
    allow_flex: bool = False,
    allow_custom: tuple[str, ...] = (),
) -> list[str]:
    """Raise BadDataError when the file is not what was asked for; return warnings.

    inputs, outputs: those of the SavedModel's signature (outputs: name → numpy dtype).
    allow_flex, allow_custom: ops that may be there although no runtime brings them along.
    """
    mode = MODES[quantize]
    if mode.integer and not facts.computes:
        what = "there is nothing to quantize: no op of the model computes with real numbers"
        raise BadDataError("converted model", what, "--quantize none")
    if facts.weightless:
        raise BadDataError("converted model", "holds no weights", "save the model with `model.export(DIRECTORY)`")
    _check_foreign(facts, allow_flex, allow_custom)
    _check_tensors("input", facts.inputs, {info.name: info.dtype for info in inputs}, mode.integer)
    _check_tensors("output", facts.outputs, outputs, mode.integer)
    if mode.searched and not _effect(quantize, facts.kinds, facts.dtypes):
        what = f"{quantize} was asked, but within the limits no layer can be int8"
        raise BadDataError("converted model", what, "--quantize float16 or none; auto tries them")
    if mode.integer and facts.integer_share < _INTEGER_SHARE:
        what = f"{quantize} was asked, but {1 - facts.integer_share:.0%} of the ops are float: "
        raise BadDataError("converted model", what + ", ".join(facts.float_ops))
    return list(_warnings(facts, quantize))


def _check_foreign(facts: Facts, allow_flex: bool, allow_custom: tuple[str, ...]) -> None:
    """Refuse what the runtimes lack, unless it was allowed."""
    if facts.flex_ops and not allow_flex:
        what = f"needs ops of TensorFlow itself: {', '.join(name[4:] for name in facts.flex_ops)}"
        raise BadDataError("converted model", what, NO_FLEX)
    unknown = [name for name in facts.custom_ops if name not in allow_custom]
    if unknown:
        flags = " ".join(f"--allow-custom {name}" for name in unknown)
        advice = f"replace them in the model; {flags} keeps them, for a runtime that registers them"
        raise BadDataError("converted model", f"needs custom ops: {', '.join(unknown)}", advice)


def _check_tensors(side: str, found: tuple[TensorSpec, ...], wanted: Mapping[str, str], integer: str) -> None:
    if {tensor.name for tensor in found} != set(wanted):
        names = [tensor.name for tensor in found]
        raise InternalError("converted model", f"has the {side}s {names}, the SavedModel {sorted(wanted)}")
    for tensor in found:
        dtype = integer if integer and wanted[tensor.name].startswith("float") else wanted[tensor.name]
        if tensor.dtype != dtype:
            what = f"{side} {tensor.name!r} is {tensor.dtype}, asked was {dtype}"
            raise BadDataError("converted model", what, _LEFT_FLOAT if dtype == integer else "")
        if integer and dtype == integer and not tensor.scale > 0:
            raise BadDataError("converted model", f"{side} {tensor.name!r} has no scale")


def _warnings(facts: Facts, quantize: str) -> Iterator[str]:
    if facts.clamped:
        # A mask of -1e9 does the same at -65504, a factor of 1e5 does not: how far the outputs are off decides.
        names = ", ".join(map(repr, facts.clamped))
        yield f"values of {names} stand at {_HALF_MAX:.0f}, where float16 ends: larger ones are cut off there"
    mode = MODES[quantize]
    if mode.calibrated and facts.float_ops:
        yield f"these ops stay float: {', '.join(facts.float_ops)}"
    if not _effect(quantize, facts.kinds, facts.dtypes):
        yield f"--quantize {quantize} had no effect: {mode.no_effect}"
    elif mode.no_effect and (share := _share(facts.dtypes, frozenset({"float32"}))) > _FLOAT_SHARE:
        yield f"--quantize {quantize} had little effect: {share:.0%} of the constants' bytes stay float32"
    if facts.random_ops:
        yield f"the model draws random numbers ({', '.join(facts.random_ops)}): its answers differ from run to run"
