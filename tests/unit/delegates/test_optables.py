"""What each table says of single ops, held against sentences of the documents."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import delegates
from delegates import registry
from delegates.oprules import OpFacts, Rule, Table, Tensor, accepts, rules
from delegates.optables import TABLES
from delegates.optables_devices import ARMNN, EDGETPU, ETHOS_U, GPU, NEUTRON, VX
from delegates.optables_litert import GPU as LITERT_GPU
from delegates.optables_litert import NEURON, OPENVINO, QNN, XNNPACK_LITERT, XNNPACK_TFLITE

BUILTIN = "ai_edge_litert.schema_py_generated"


def conv(dtype: str, *, weights: bool = True, activation: str = "", batch: int = 1) -> OpFacts:
    """A CONV_2D of [batch, 8, 8, 3] → [batch, 8, 8, 4]."""
    inputs = [Tensor(dtype, (batch, 8, 8, 3)), Tensor(dtype, (4, 3, 3, 3), weights), Tensor("int32", (4,), weights)]
    return OpFacts("CONV_2D", inputs, [Tensor(dtype, (batch, 8, 8, 4))], activation=activation)


def one(name: str, dtype: str, shape: tuple[int, ...] = (1, 8), to: str = "", activation: str = "") -> OpFacts:
    """An op of one input and one output of the same shape."""
    return OpFacts(name, [Tensor(dtype, shape)], [Tensor(to or dtype, shape)], activation=activation)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_table_says_where_it_comes_from(table: Table) -> None:
    """A row of the report must be checkable: an address, an edition, and real op names."""
    schema = pytest.importorskip(BUILTIN)
    assert table.source.startswith("https://")
    assert table.edition
    assert table.title
    assert not set(table.ops) - set(vars(schema.BuiltinOperator))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_table_takes_a_convolution_it_was_made_for(table: Table) -> None:
    """No table refuses the op that all of these devices exist for."""
    dtype = "float32" if table is XNNPACK_TFLITE else "int8"
    assert accepts(table, conv(dtype)) == ""


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_no_table_takes_control_flow_or_flex(table: Table) -> None:
    """WHILE, and TensorFlow's own ops, are in no document; a custom op of a builtin's name is not that builtin."""
    assert accepts(table, one("WHILE", "float32")) == "not in its table"
    assert accepts(table, OpFacts("ADD", [], [], custom=True)) == "not in its table"


@pytest.mark.parametrize(
    ("table", "op", "reason"),
    [
        # "It supports only TensorFlow Lite models that are fully 8-bit quantized"
        (EDGETPU, conv("float32"), "float32 (takes int8, uint8)"),
        (EDGETPU, conv("int16"), "int16 (takes int8, uint8)"),
        (EDGETPU, conv("uint8"), ""),
        # the sizes of tensors are fixed when it compiles
        (EDGETPU, conv("int8", batch=-1), "open dimension"),
        # so are the parameters of the model
        (EDGETPU, conv("int8", weights=False), "input 1 is computed"),
        # "then only the 3 innermost dimensions may have a size greater than 1"
        (EDGETPU, conv("int8", batch=2), "more than 3 dimensions above 1"),
        # "No fused activation function"
        (EDGETPU, one("MAX_POOL_2D", "int8", activation="RELU6"), "fused RELU6"),
        (EDGETPU, one("MAX_POOL_2D", "int8"), ""),
        (EDGETPU, conv("int8", activation="RELU6"), ""),
        # a model with float inputs: "the compiler leaves a quantize op at the beginning"
        (EDGETPU, one("QUANTIZE", "float32", to="int8"), "float32 (takes int8, uint8)"),
        (EDGETPU, one("QUANTIZE", "int8"), ""),
        (EDGETPU, one("LEAKY_RELU", "int8"), "not in its table"),
        # Vela: "Feature-map dataTypes must be one of …", 16-bit activations are among them, float is not
        (ETHOS_U, conv("int16"), ""),
        (ETHOS_U, conv("float32"), "float32 (takes int16, int8, uint8)"),
        (ETHOS_U, one("ADD", "int32"), ""),
        (ETHOS_U, one("ABS", "int32"), "int32 (takes int16, int8, uint8)"),
        (ETHOS_U, one("ELU", "uint8"), "uint8 (takes int8)"),
        # NXP: no int16 result, nothing above 6 dimensions, no int64 input even as a constant
        (VX, conv("int16"), "int16 (takes bool, float16, float32, int32, int8, uint8)"),
        (VX, one("ABS", "int8", (1,) * 7), "rank 7 (takes up to 6)"),
        (VX, OpFacts("TILE", [], []), "not in its table"),
        (VX, OpFacts("SUM", [Tensor("int8"), Tensor("int64", constant=True)], [Tensor("int8")]), "int64 input"),
        # NXP Neutron: both summands computed, constant weights
        (
            NEUTRON,
            OpFacts("ADD", [Tensor("int8"), Tensor("int8", (), True)], [Tensor("int8")]),
            "input 1 is a constant",
        ),
        (NEUTRON, conv("float32"), "float32 (takes int8, uint8)"),
        # TFLite GPU: float and 8-bit, not int16; no fifth dimension; comparisons give bools
        (GPU, conv("float32"), ""),
        (GPU, conv("int16"), "int16 (takes float16, float32, int8, uint8)"),
        (GPU, one("ABS", "float32", (1,) * 5), "rank 5 (takes up to 4)"),
        (GPU, one("LESS", "float32", to="bool"), ""),
        (GPU, one("SLICE", "float32", (1, 8)), "rank 2 (takes 3 or 4)"),
        (GPU, one("ARG_MAX", "float32"), "not in its table"),
        # Arm NN: "Supported Fused Activation: RELU, RELU6, …, TANH, NONE"
        (ARMNN, conv("int8", activation="TANH"), ""),
        (ARMNN, conv("int8", activation="SIGN_BIT"), "fused SIGN_BIT"),
        # XNNPACK has no fused TANH and no int16
        (XNNPACK_TFLITE, conv("float32", activation="TANH"), "fused TANH"),
        (XNNPACK_TFLITE, conv("int8"), "int8 (takes float32)"),
        (XNNPACK_LITERT, conv("int16"), "int16 (takes float32, int8, uint8)"),
        (XNNPACK_LITERT, one("CUMSUM", "float32"), "not in its table"),
        # LiteRT's table, row by row
        (LITERT_GPU, one("QUANTIZE", "float32"), "not in its table"),
        (QNN, one("TOPK_V2", "float32"), ""),
        (NEURON, one("RELU6", "int8"), "not in its table"),
        (OPENVINO, one("EXPAND_DIMS", "float32"), ""),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_what_the_documents_say(table: Table, op: OpFacts, reason: str) -> None:
    """Each line is a sentence of a document, put as an op that it takes or refuses."""
    assert accepts(table, op) == reason


def test_an_input_that_is_left_out_is_no_reason() -> None:
    """A convolution without bias has a hole in its inputs, not a computed bias."""
    inputs = [Tensor("int8", (1, 8, 8, 3)), Tensor("int8", (4, 3, 3, 3), constant=True), None]
    assert accepts(EDGETPU, OpFacts("CONV_2D", inputs, [Tensor("int8", (1, 8, 8, 4))])) == ""
    assert accepts(EDGETPU, OpFacts("CONV_2D", inputs[:2], [Tensor("int8", (1, 8, 8, 4))])) == ""


def test_rules_of_a_list_and_special_ones() -> None:
    """The special rule stands in place of the common one."""
    made = rules("A B", Rule(note="x"), B=Rule(note="y"), C=Rule())
    assert {name: rule.note for name, rule in made.items()} == {"A": "x", "B": "y", "C": ""}


def test_a_table_has_the_name_that_a_configuration_has() -> None:
    """One name each, in both: a delegate of the registry, or XNNPACK, which serves on the CPU inside a runtime."""
    alone = [table for table in TABLES if not table.runtime]
    assert len({table.name for table in alone}) == len(alone)
    assert {table.name for table in alone} == set(registry.BUILT_IN) - {"cpu", *registry.WITH_OPTIONS_ONLY}
    inside = [table for table in TABLES if table.runtime]
    assert {table.name for table in inside} == {"xnnpack"}
    assert all("XNNPACK, the CPU delegate in" in table.title for table in inside)


def test_every_table_is_listed_once() -> None:
    """A table that is defined but not listed would never be looked at; two of one document could not be told apart."""
    modules = (
        importlib.import_module(f"delegates.{path.stem}") for path in Path(delegates.__file__).parent.glob("*.py")
    )
    defined = {value.document for module in modules for value in vars(module).values() if isinstance(value, Table)}
    assert sorted(table.document for table in TABLES) == sorted(defined)
