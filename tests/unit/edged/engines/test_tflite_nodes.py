"""What each op of a file works on: hand-made graphs whose answer is known."""

from __future__ import annotations

import pytest

from edged.engines import tflite_nodes
from edged.engines.tflite_file import Graph, ModelFile, Op, Tensor

ONE = (0.5,), (0,)
TENSORS = {
    "real": Tensor("real", "float32", (1,), (1,)),
    "half": Tensor("half", "float16", (1,), (1,), data=b"\0\0"),
    "byte": Tensor("byte", "int8", (1,), (1,), *ONE),
    "pixel": Tensor("pixel", "uint8", (1,), (1,), *ONE),
    "plain": Tensor("plain", "uint8", (1,), (1,)),
    "weight": Tensor("weight", "int8", (1,), (1,), *ONE, data=b"\1"),
    "nibble": Tensor("nibble", "int4", (1,), (1,), *ONE, data=b"\1"),
    "wide": Tensor("wide", "int16", (1,), (1,), *ONE),
    "bias": Tensor("bias", "int32", (1,), (1,), *ONE, data=b"\1\0\0\0"),
    "index": Tensor("index", "int32", (1,), (1,)),
}


def graph(*ops: str) -> Graph:
    """A graph of ops written as `NAME inputs > outputs`, tensors by the names above, `-` for one left out."""
    numbers = {name: number for number, name in enumerate(TENSORS)} | {"-": -1}

    def op(text: str) -> Op:
        name, *rest = text.split()
        cut = rest.index(">")
        ends = (tuple(numbers[word] for word in side) for side in (rest[:cut], rest[cut + 1 :]))
        return Op(name, 1, *ends, custom=not name.isupper())

    return Graph("main", tuple(TENSORS.values()), tuple(map(op, ops)), (0,), (0,))


def model(*graphs: Graph, **more: object) -> ModelFile:
    """A file of these graphs."""
    versions = {op.name: op.version for one in graphs for op in one.ops}
    return ModelFile(graphs, (), versions=versions, **more)


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        ("CONV_2D real real - > real", "float"),
        ("CONV_2D real half > real", "float"),
        ("FULLY_CONNECTED real weight > real", "hybrid"),
        ("FULLY_CONNECTED real nibble > real", "hybrid"),
        ("CONV_2D byte weight bias > byte", "int8"),
        ("CONV_2D pixel weight bias > pixel", "int8"),
        ("CONV_2D wide weight bias > wide", "int16"),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM byte weight bias wide > byte", "int8"),  # its inner state has 16 bits
        ("ARG_MAX byte index > index", "int8"),
        ("ARG_MAX wide index > index", "int16"),
        ("CAST plain > real", "float"),
        ("CAST byte > real", "float"),  # computed bytes are no weights
        ("GATHER plain index > plain", "other"),  # pixels that nothing quantized
        ("ADD index index > index", "other"),
        ("SHAPE real > index", "other"),
        ("QUANTIZE real > byte", "other"),
        ("DEQUANTIZE byte > real", "other"),
        ("DEQUANTIZE half > real", "other"),
        ("WHILE real real > real", "other"),
        ("MyOp real > real", "float"),
    ],
)
def test_the_kind_of_an_op(op: str, kind: str) -> None:
    """By the dtypes of what flows through it; borders, shapes and control flow belong to no kind."""
    (node,) = tflite_nodes.nodes(graph(op))
    assert node.kind == kind
    assert (node.index, node.version, node.custom) == (0, 1, op.startswith("My"))


def test_borders_do_not_count_and_bodies_do() -> None:
    """Two of three computing ops are int8: one of them in the body of the loop."""
    main = graph("QUANTIZE real > byte", "WHILE byte > byte", "CONV_2D byte weight > byte", "DEQUANTIZE byte > real")
    body = graph("ADD byte byte > byte", "EXP real > real", "ADD index index > index")
    file = model(main, body)
    kinds = tflite_nodes.kinds(file)
    assert kinds == {"int8": 2, "int16": 0, "float": 1, "hybrid": 0, "other": 4}
    assert tflite_nodes.integer_share(kinds) == pytest.approx(2 / 3)
    assert tflite_nodes.float_ops(file) == ("EXP",)
    assert tflite_nodes.counts(file)["ADD"] == 2


def test_a_file_that_computes_nothing_is_no_float_file() -> None:
    """A model of ids and shapes alone has a share of 1, not a division by zero."""
    assert tflite_nodes.integer_share(tflite_nodes.kinds(model(graph("ADD index index > index")))) == 1.0


def test_foreign_ops_are_told_apart() -> None:
    """TensorFlow's own ops and the others, each once, from every graph."""
    file = model(graph("FlexErf real > real", "MyOp real > real"), graph("FlexErf real > real"))
    assert tflite_nodes.custom_ops(file, flex=True) == ("FlexErf",)
    assert tflite_nodes.custom_ops(file, flex=False) == ("MyOp",)


def test_state_is_a_variable_or_a_tensor_that_outlives() -> None:
    """Resource variables that an op writes, and the variable tensors of fused RNNs; what no op touches is none."""
    tensors = (Tensor("s", "int8", (1,), (1,), variable=True),)
    assert tflite_nodes.stateful(model(Graph("main", tensors, (Op("SVDF", 1, (0,), ()),), (), ())))
    assert not tflite_nodes.stateful(model(Graph("main", tensors, (), (), ())))
    assert tflite_nodes.stateful(model(graph("ADD real real > real"), graph("ASSIGN_VARIABLE index real >")))
    assert tflite_nodes.stateful(model(graph("FlexAssignAddVariableOp index real >")))
    assert not tflite_nodes.stateful(model(graph("ADD real real > real")))


def test_what_is_only_read_is_no_state() -> None:
    """Weights that stand in variables, as a Keras GRU's do: read, or given their first values by a CALL_ONCE."""
    assert not tflite_nodes.stateful(model(graph("READ_VARIABLE index > real")))
    main = Graph("main", (), (Op("CALL_ONCE", 1, (), (), once=1),), (), ())
    assert not tflite_nodes.stateful(model(main, graph("ASSIGN_VARIABLE index real >")))


def test_shared_bytes_are_counted_once() -> None:
    """Two tensors of one buffer: the sum of the sizes is what the file holds."""
    held = bytes(range(100))
    tensors = tuple(Tensor(name, "int8", (100,), (100,), data=held) for name in "ab")
    file = model(Graph("main", tensors, (), (), ()))
    assert tflite_nodes.dtypes(file) == {"int8": (2, 100)}
    assert [tensor.name for tensor in tflite_nodes.constants(file)] == ["a"]
