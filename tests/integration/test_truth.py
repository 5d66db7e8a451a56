"""What the converter really writes, read back: by our reader, by the format's own classes, and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import tflitefiles, tinymodel

from converters import gates, parity, truth
from converters.options import Options
from converters.samples import InputInfo
from edged.engines import tflite_file
from edged.errors import BadDataError

CNN_INPUTS = (InputInfo("x", "float32", (1, 16, 16, 3)),)
CNN_OUTPUTS = {"output_0": "float32"}
# Of the net in tests/support/tflitefiles.py, by layer: conv 3x3x3 to 8, depthwise 3x3, dense 288 to 64, dense to 4.
WEIGHTS = 3 * 3 * 3 * 8 + 3 * 3 * 8 + 6 * 6 * 8 * 64 + 64 * 4
FILES = (
    "cnn_none", "cnn_float16", "cnn_dynamic", "cnn_int8", "cnn_int16x8", "cnn_offset", "cnn_open",
    "gru", "count", "flex", "custom", "clamped", "masked", "two",
)  # fmt: skip

pytestmark = pytest.mark.tf


@pytest.mark.parametrize("name", FILES)
def test_two_readers_agree_on_what_the_converter_writes(name: str) -> None:
    """Every tensor, op, constant, signature and version of a real file, against the generated classes."""
    model = tflitefiles.converted(name)
    assert tflite_file.read(model) == tflitefiles.second_reading(model)


@pytest.mark.parametrize("name", ["cnn_int8", "gru", "two"])
def test_a_real_file_cut_short_or_damaged(name: str) -> None:
    """Cut anywhere and changed anywhere: ValueError or a file, whatever the damage."""
    model = tflitefiles.converted(name)
    random = np.random.default_rng(0)
    for size in random.integers(0, len(model) - 64, 100):
        with pytest.raises(ValueError, match="is "):
            tflite_file.read(model[:size])
    for _ in range(300):
        damaged = bytearray(model)
        for at in random.integers(0, min(len(model), 4000) - 4, 4):
            damaged[at : at + 4] = random.bytes(4)
        try:
            assert tflite_file.read(bytes(damaged)).graphs
        except ValueError:
            continue


def test_constants_behind_the_flatbuffer_are_those_inside_it() -> None:
    """The same net, written both ways, holds the same weights."""
    inside, behind = (tflite_file.read(tflitefiles.converted(name)) for name in ("cnn_none", "cnn_offset"))
    assert inside.graphs == behind.graphs
    assert sum(len(tensor.data) for tensor in behind.graphs[0].tensors) >= 4 * WEIGHTS


@pytest.mark.parametrize(
    ("mode", "kinds", "weights"),
    [
        ("none", {"float": 7}, 0),
        ("float16", {"float": 7, "other": 5}, 0),
        ("dynamic", {"float": 6, "hybrid": 1}, 36 * 8 * 64),  # the other weights have fewer than 1024 values
        ("int8", {"int8": 7}, WEIGHTS),
        ("int16x8", {"int16": 7}, WEIGHTS),
    ],
)
def test_each_mode_is_told_by_what_it_left_in_the_file(mode: str, kinds: dict[str, int], weights: int) -> None:
    """Kinds of the seven layers, bytes of 8-bit constants counted from the net itself, and no complaint."""
    found = truth.read(tflitefiles.converted(f"cnn_{mode}"), mode)
    assert {kind: count for kind, count in found.kinds.items() if count} == kinds
    assert found.dtypes.get("int8", (0, 0))[1] == weights
    total = sum(size for _, size in found.dtypes.values())
    assert found.int8_bytes_share == pytest.approx(weights / total)
    assert found.integer_share == (1.0 if mode.startswith("int") else 0.0)
    assert (found.effect, found.stateful, found.weightless, found.open_shapes) == (True, False, False, ())
    assert truth.check(found, CNN_INPUTS, CNN_OUTPUTS, mode) == []


def test_float_where_int8_was_asked_is_refused() -> None:
    """The float file passed off as the int8 one is refused, as mixed too; as dynamic it is said to have no effect."""
    found = truth.read(tflitefiles.converted("cnn_none"), "int8")
    assert not found.effect
    with pytest.raises(BadDataError, match="input 'x' is float32, asked was int8"):
        truth.check(found, CNN_INPUTS, CNN_OUTPUTS, "int8")
    with pytest.raises(BadDataError, match="no layer can be int8"):
        truth.check(found, CNN_INPUTS, CNN_OUTPUTS, "mixed")
    for mode in ("dynamic", "float16"):
        warnings = truth.check(found, CNN_INPUTS, CNN_OUTPUTS, mode)
        assert any("had no effect" in warning for warning in warnings)


def answers(name: str, v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the bare runtime makes of v [count, 1, 3]."""
    runner = tinymodel.require_runtime("ai-edge-litert").module().Interpreter(model_content=tflitefiles.converted(name))
    return np.stack([runner.get_signature_runner()(v=one)["o"] for one in v])


V = np.random.default_rng(4).normal(size=(20, 1, 3)).astype(np.float32)
WEIGHT = np.full((3, 3), 1e-3)
MASKED = np.exp(V + np.array([0.0, -1e9, 0.0]))
# Of the nets in tests/support/tflitefiles.py: what float64 answers.
TRUE = {"clamped": V * 1e5 + V @ WEIGHT, "masked": MASKED / MASKED.sum(-1, keepdims=True) @ WEIGHT}


@pytest.mark.parametrize(("name", "constant", "harmless"), [("clamped", "mul/y", False), ("masked", "add/y", True)])
def test_a_constant_that_float16_cannot_hold_is_named_and_judged(name: str, constant: str, harmless: bool) -> None:
    """1e5 and -1e9 became 65504 without a word of the converter's. The factor makes answers a third smaller, which a
    cosine does not see, and is refused by name; the mask does the same as before, and is told."""
    found = truth.read(tflitefiles.converted(name), "float16")
    assert found.clamped == (constant,)
    inputs = (InputInfo("v", "float32", (1, 3)),)
    assert any(repr(constant) in warning for warning in truth.check(found, inputs, {"o": "float32"}, "float16"))
    floats, converted = {"o": TRUE[name].astype(np.float32)}, {"o": answers(name, V)}
    options = Options(Path("m"), Path("b"), "m", 1, quantize="float16")
    made = parity.compare(floats, converted, options, real_data=False, clamped=bool(found.clamped))
    failures = gates.failures(made, [], found.clamped)
    assert (not failures) is harmless
    if not harmless:
        assert any("relative is 0.34" in failure for failure in failures)
        assert f"float16 cannot hold the values of {constant!r} (beyond 65504)" in failures[-1]


@pytest.mark.parametrize(
    ("name", "says"), [("flex", "ops of TensorFlow itself: MatrixInverse"), ("custom", "custom ops: MatrixInverse")]
)
def test_foreign_ops_are_named(name: str, says: str) -> None:
    """The same op as TensorFlow's own and as a custom one; each flag allows its own kind only."""
    found = truth.read(tflitefiles.converted(name))
    ends = (InputInfo("v", "float32", (1, 3, 3)),), {"o": "float32"}
    wrong_flag = {"allow_custom": ("FlexMatrixInverse",)} if name == "flex" else {"allow_flex": True}
    with pytest.raises(BadDataError, match=says):
        truth.check(found, *ends, "none", **wrong_flag)
    assert truth.check(found, *ends, "none", allow_flex=True, allow_custom=("MatrixInverse",)) == []


def test_loops_state_and_open_dimensions() -> None:
    """The body of a loop counts; a variable is state; an open batch is named."""
    gru = truth.read(tflitefiles.converted("gru"))
    assert len(gru.nodes) < sum(gru.counts.values())
    assert {"LOGISTIC", "TANH"} <= set(gru.float_ops)
    assert not {"LOGISTIC", "TANH"} & {node.op for node in gru.nodes}
    assert truth.read(tflitefiles.converted("count")).stateful
    assert not truth.read(tflitefiles.converted("gru")).stateful  # its weights are variables, which it only reads
    assert truth.read(tflitefiles.converted("cnn_open")).open_shapes == ("x", "output_0")
