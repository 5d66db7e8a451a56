"""Reading a model file back, and refusing one that is not what was asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from support import tinymodel

from converters import truth
from converters.samples import InputInfo
from edged.bundle import TensorSpec
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
        ({"outputs": (dataclasses.replace(OUT8, dtype="float32"),)}, "output 'y' is float32, asked was int8"),
        ({"outputs": (dataclasses.replace(OUT8, scale=0.0),)}, "output 'y' has no scale"),
        ({"integer_share": 0.3, "float_ops": ("CONV_2D",)}, "int8 was asked, but 70% of the ops are float: CONV_2D"),
        ({"clamped": ("w",)}, "float16 cannot hold the values of 'w'"),
    ],
)
def test_what_was_not_asked_is_refused(changes: dict[str, Any], says: str) -> None:
    """Float where int8 was asked, missing weights, clamped constants: BadDataError, each by name."""
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


def test_warnings_name_what_may_surprise() -> None:
    """Ops left in float, a mode without effect, random answers."""
    assert "stay float: EXP" in truth.check(facts(float_ops=("EXP",), integer_share=0.9), INPUTS, OUTPUTS, "int8")[0]
    float_in = dataclasses.replace(IN8, dtype="float32", scale=0.0)
    float_out = dataclasses.replace(OUT8, dtype="float32", scale=0.0)
    plain = facts(inputs=(float_in,), outputs=(float_out,), dtypes={"float32": (3, 64)}, ops={"RANDOM_UNIFORM": 1})
    warnings = truth.check(plain, INPUTS, OUTPUTS, "dynamic")
    assert "had no effect" in warnings[0]
    assert "differ from run to run" in warnings[1]
