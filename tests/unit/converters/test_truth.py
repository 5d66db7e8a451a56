"""Reading a model file back, and refusing one that is not what was asked for."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from support import tflitefiles, tinymodel

from converters import plain, truth
from converters.samples import InputInfo
from edged.bundle import TensorSpec
from edged.engines.tflite_nodes import Node
from edged.errors import BadDataError, InternalError

IN8 = TensorSpec("x", "int8", (1, 8), 0.05, 3)
OUT8 = TensorSpec("y", "int8", (1, 8), 0.1, 3)
INPUTS = (InputInfo("x", "float32", (1, 8)),)
OUTPUTS = {"y": "float32"}


def facts(**changes: Any) -> truth.Facts:
    """A sound int8 model."""
    good = truth.Facts(
        signature="serving_default",
        inputs=(IN8,),
        outputs=(OUT8,),
        ops={"ADD": 2},
        dtypes={"int8": (3, 64)},
        integer_share=1.0,
        float_ops=(),
        clamped=(),
        weightless=False,
        stateful=False,
        kinds={"int8": 2, "float": 1},
    )
    return dataclasses.replace(good, **changes)


def test_a_real_file_is_read_as_it_was_written() -> None:
    """Names, dtypes, shapes, scales, op versions and bytes of constants of files made by hand."""
    found = truth.read(tinymodel.int8_model(scale=0.25, zero_point=-7))
    assert found.inputs == (TensorSpec("x", "int8", (1, 8), 0.25, -7),)
    assert found.outputs == (TensorSpec("y", "int8", (1, 8), 0.5, -7),)
    assert (found.ops, found.integer_share, found.weightless, found.stateful) == ({"ADD": 1}, 1.0, False, False)
    dense = truth.read(tinymodel.dense_model())
    constants = tinymodel.WEIGHTS.nbytes + tinymodel.BIAS.nbytes
    assert dense.dtypes == {"float32": (4, constants)}
    assert (dense.float_ops, dense.integer_share) == (("FULLY_CONNECTED",), 0.0)
    assert dense.nodes == (Node(0, "FULLY_CONNECTED", 1, "float", custom=False, tensor="y"),)


def test_tensors_are_bound_by_signature_name() -> None:
    """The order of a file's tensors is not the signature's: names come sorted, each with its own tensor."""
    found = truth.read(tinymodel.difference_model())
    assert [tensor.name for tensor in found.inputs] == ["a", "b"]
    assert [tensor.name for tensor in found.outputs] == ["a_sum", "z_diff"]


def test_what_was_asked_passes_in_silence() -> None:
    """A sound int8 model gives no warning."""
    assert truth.check(facts(), INPUTS, OUTPUTS, "int8") == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"weightless": True}, "holds no weights"),
        ({"inputs": (dataclasses.replace(IN8, dtype="float32", scale=0.0),)}, "input 'x' is float32, asked was int8"),
        (
            {"outputs": (dataclasses.replace(OUT8, dtype="float32"),)},
            r"output 'y' is float32, asked was int8 \(the converter left it so; --quantize mixed has float inputs",
        ),
        ({"outputs": (dataclasses.replace(OUT8, scale=0.0),)}, "output 'y' has no scale"),
        ({"kinds": {"int8": 0, "float": 0, "other": 3}}, r"there is nothing to quantize: .* \(--quantize none\)"),
        ({"integer_share": 0.3, "float_ops": ("CONV_2D",)}, "int8 was asked, but 70% of the ops are float: CONV_2D"),
    ],
)
def test_what_was_not_asked_is_refused(changes: dict[str, Any], says: str) -> None:
    """Float where int8 was asked, missing weights: BadDataError, each by name."""
    with pytest.raises(BadDataError, match=says):
        truth.check(facts(**changes), INPUTS, OUTPUTS, "int8")


def test_lost_outputs_are_a_fault_of_the_converter() -> None:
    """A signature whose names changed on the way cannot be bound."""
    with pytest.raises(InternalError, match=r"has the outputs \['y'\], the SavedModel \['y', 'z'\]"):
        truth.check(facts(), INPUTS, OUTPUTS | {"z": "float32"}, "int8")


def test_whole_numbers_keep_their_own_dtype() -> None:
    """An int32 input and an int64 output are not quantized by int8."""
    ids = TensorSpec("ids", "int32", (1, 3), 0.0, 0)
    best = TensorSpec("k", "int64", (1,), 0.0, 0)
    inputs = (*INPUTS, InputInfo("ids", "int32", (1, 3)))
    found = facts(inputs=(IN8, ids), outputs=(OUT8, best))
    assert truth.check(found, inputs, OUTPUTS | {"k": "int64"}, "int8") == []


def test_facts_travel_as_json() -> None:
    """What the TensorFlow child found out is the same on this side of the pipe, nodes included."""
    found = truth.read(tflitefiles.written(), "int8")
    sent = json.loads(json.dumps(dataclasses.asdict(found)))
    assert plain.build(truth.Facts, sent, "child") == found
    assert (found.custom_ops, found.flex_ops, found.stateful) == (("MyOp",), ("FlexErf",), True)
    assert (found.open_shapes, found.min_runtime_version) == (("x",), "2.5.0")


def test_ops_outside_tflite_are_refused_unless_allowed() -> None:
    """Each by name; a flag is named as what it is, for no runtime that pip installs has ops of TensorFlow itself."""
    flex, custom = facts(flex_ops=("FlexErf", "FlexRoll")), facts(custom_ops=("MyOp", "Yours"))
    with pytest.raises(
        BadDataError, match=r"TensorFlow itself: Erf, Roll \(replace them .* no device runtime that pip"
    ):
        truth.check(flex, INPUTS, OUTPUTS, "int8", allow_custom=("FlexErf",))
    with pytest.raises(BadDataError, match=r"needs custom ops: Yours \(replace them .*--allow-custom Yours keeps them"):
        truth.check(custom, INPUTS, OUTPUTS, "int8", allow_flex=True, allow_custom=("MyOp",))
    assert truth.check(flex, INPUTS, OUTPUTS, "int8", allow_flex=True) == []
    assert truth.check(custom, INPUTS, OUTPUTS, "int8", allow_custom=("MyOp", "Yours")) == []


@pytest.mark.parametrize(
    ("value", "clamped"),
    [(65504.0, True), (-65504.0, True), (np.inf, True), (np.nan, True), (65472.0, False), (0.0, False)],
)
def test_clamped_constants(value: float, clamped: bool) -> None:
    """The converter writes 65504 for whatever is larger; the next smaller float16, 65472, was not touched."""
    data = np.array([1.0, value], np.float16).tobytes()
    tensor = tflitefiles.part("Tensor", name="w", type=1, shape=[2], buffer=1)
    model = tflitefiles.packed(
        operatorCodes=[],
        subgraphs=[tflitefiles.graph([tensor], [], [0], [0])],
        buffers=[tflitefiles.buffer(), tflitefiles.buffer(data)],
        signatureDefs=[tflitefiles.signature("s", {}, {})],
    )
    assert truth.read(model).clamped == (("w",) if clamped else ())


def test_a_clamped_constant_is_told_and_the_outputs_decide() -> None:
    """By name: a mask of -1e9 does the same at -65504, so that alone is no refusal."""
    ends = {side: (dataclasses.replace(spec, dtype="float32"),) for side, spec in (("inputs", IN8), ("outputs", OUT8))}
    found = facts(clamped=("mask", "w"), dtypes={"float16": (2, 64)}, **ends)
    (warning,) = truth.check(found, INPUTS, OUTPUTS, "float16")
    assert warning.startswith("values of 'mask', 'w' stand at 65504, where float16 ends")


def test_a_string_output_is_refused_by_name() -> None:
    """No request or answer of ours can carry it, whatever the converter made of it."""
    tensor = tflitefiles.part("Tensor", name="t", type=5, shape=[1], buffer=0)
    model = tflitefiles.packed(
        subgraphs=[tflitefiles.graph([tensor], [], [], [0])],
        buffers=[tflitefiles.buffer()],
        signatureDefs=[tflitefiles.signature("s", {}, {"words": 0})],
    )
    with pytest.raises(BadDataError, match="'words' is string"):
        truth.read(model)


@pytest.mark.parametrize(
    ("data", "says"), [(b"\0" * 40, "wrote a file that is no .tflite"), (tinymodel.dense_model()[:90], "is cut short")]
)
def test_a_damaged_file_is_a_fault_of_the_converter(data: bytes, says: str) -> None:
    """Told in the reader's words."""
    with pytest.raises(InternalError, match=says):
        truth.read(data)


def test_a_file_without_a_signature() -> None:
    """Nothing in it can be bound by name."""
    model = tflitefiles.packed(subgraphs=[tflitefiles.graph([], [], [], [])], buffers=[tflitefiles.buffer()])
    with pytest.raises(InternalError, match="without a signature"):
        truth.read(model)


@pytest.mark.parametrize(
    ("quantize", "kinds", "dtypes", "effect"),
    [
        ("none", {"float": 3}, {"float32": (3, 64)}, True),
        ("float16", {"float": 3}, {"float32": (3, 64)}, False),
        ("float16", {"float": 3}, {"float16": (1, 32), "float32": (3, 0)}, True),
        ("dynamic", {"float": 3}, {"float32": (3, 64)}, False),
        ("dynamic", {"hybrid": 1}, {"int8": (1, 64), "float32": (3, 0)}, True),
        ("mixed", {"float": 3, "int8": 1}, {"int8": (1, 64), "float32": (3, 0)}, True),
        ("int8", {"int16": 3}, {"int8": (3, 64)}, False),
        ("int16x8", {"int8": 3}, {"int8": (3, 64)}, False),
        ("int16x8", {"int16": 3}, {"int8": (3, 64)}, True),
    ],
)
def test_a_mode_without_effect_is_said_so(
    quantize: str, kinds: dict[str, int], dtypes: dict[str, tuple[int, int]], effect: bool
) -> None:
    """The converter calls it a success all the same."""
    integer = {"int8": "int8", "int16x8": "int16"}.get(quantize, "float32")
    ends = {side: (dataclasses.replace(spec, dtype=integer),) for side, spec in (("inputs", IN8), ("outputs", OUT8))}
    warnings = truth.check(facts(kinds=kinds, dtypes=dtypes, **ends), INPUTS, OUTPUTS, quantize)
    assert any("had no effect" in warning for warning in warnings) is not effect


def test_a_mixture_without_any_int8_is_refused() -> None:
    """The search may end with every layer float: that is no mixture, and does not ship under its name."""
    ends = {side: (dataclasses.replace(spec, dtype="float32"),) for side, spec in (("inputs", IN8), ("outputs", OUT8))}
    with pytest.raises(BadDataError, match="mixed was asked, but within the limits no layer can be int8"):
        truth.check(facts(kinds={"float": 3}, dtypes={"float32": (3, 64)}, **ends), INPUTS, OUTPUTS, "mixed")


def test_a_mode_that_leaves_most_bytes_float_is_said_so() -> None:
    """A file that is not smaller although one small weight became int8."""
    ends = {side: (dataclasses.replace(spec, dtype="float32"),) for side, spec in (("inputs", IN8), ("outputs", OUT8))}
    found = facts(dtypes={"int8": (1, 10), "float32": (3, 90)}, **ends)
    (warning,) = truth.check(found, INPUTS, OUTPUTS, "dynamic")
    assert warning == "--quantize dynamic had little effect: 90% of the constants' bytes stay float32"


def test_warnings_name_what_may_surprise() -> None:
    """Ops left in float, a mode without effect, random answers."""
    assert "stay float: EXP" in truth.check(facts(float_ops=("EXP",), integer_share=0.9), INPUTS, OUTPUTS, "int8")[0]
    float_in = dataclasses.replace(IN8, dtype="float32", scale=0.0)
    float_out = dataclasses.replace(OUT8, dtype="float32", scale=0.0)
    plain = facts(inputs=(float_in,), outputs=(float_out,), dtypes={"float32": (3, 64)}, ops={"RANDOM_UNIFORM": 1})
    warnings = truth.check(plain, INPUTS, OUTPUTS, "dynamic")
    assert "had no effect" in warnings[0]
    assert "differ from run to run" in warnings[1]
