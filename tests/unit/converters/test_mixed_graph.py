"""Layers of a float graph: what belongs together, what shares constants, what stands between float layers only."""

from __future__ import annotations

import numpy as np

from converters.mixed_graph import Layer, closed, described, float_bytes, layers
from edged.engines.tflite_file import Graph, Op, Tensor


def _tensor(name: str, dtype: str = "float32", constant: int = 0) -> Tensor:
    data = np.ones(constant, dtype).tobytes()
    return Tensor(name, dtype, (1, max(constant, 1)), (1, max(constant, 1)), data=data)


def _graph() -> Graph:
    """x → reshape → conv(w) → pad → add(b) → split → (conv(w), neg) → concat; beside it SHAPE, which has no numbers."""
    names = ["x", "r", "c1", "p", "a", "s1", "s2", "c2", "n", "cat"]
    tensors = [*map(_tensor, names), _tensor("w", constant=8), _tensor("b", constant=2), _tensor("shape", "int32")]
    ops = [
        Op("RESHAPE", 1, (0,), (1,)),
        Op("CONV_2D", 1, (1, 10, -1), (2,)),
        Op("PAD", 1, (2,), (3,)),
        Op("SHAPE", 1, (12,), (12,)),
        Op("ADD", 1, (3, 11), (4,)),
        Op("SPLIT", 1, (4,), (5, 6)),
        Op("CONV_2D", 1, (5, 10), (7,)),
        Op("NEG", 1, (6,), (8,)),
        Op("CONCATENATION", 1, (7, 8), (9,)),
    ]
    return Graph("main", tuple(tensors), tuple(ops), (0,), (9,))


def test_ops_that_move_data_belong_to_the_layer_that_computed_it() -> None:
    """A leading reshape goes to its reader, a pad and a split to what made their data; SHAPE is in no layer."""
    found = layers(_graph())
    assert [(layer.op, layer.outputs) for layer in found] == [
        ("CONV_2D", ("r", "c1", "p")),
        ("ADD", ("a", "s1", "s2")),
        ("CONV_2D", ("c2",)),
        ("NEG", ("n", "cat")),
    ]
    assert [sorted(layer.near) for layer in found] == [[1], [0, 2, 3], [1, 3], [1, 2]]


def test_an_op_with_several_outputs_is_told_by_its_kind() -> None:
    """The quantizer knows ops by the name of their one output; SPLIT has two."""
    assert [set(layer.several) for layer in layers(_graph())] == [set(), {"SPLIT"}, set(), set()]


def test_shared_constants_count_once() -> None:
    """Both convolutions read the same 8 floats: 32 bytes together, and 8 more for the bias of the ADD."""
    found = layers(_graph())
    assert [float_bytes([number], found) for number in range(4)] == [32, 8, 32, 0]
    assert float_bytes([0, 1, 2], found) == 40


def test_a_graph_that_only_moves_data_is_one_layer_each() -> None:
    """Nothing computes: each op stands for itself, and none is lost."""
    graph = Graph(
        "main", tuple(map(_tensor, "xyz")), (Op("RESHAPE", 1, (0,), (1,)), Op("PAD", 1, (1,), (2,))), (0,), (2,)
    )
    assert sorted(name for layer in layers(graph) for name in layer.outputs) == ["y", "z"]


def _chain(*weights: bool) -> list[Layer]:
    last = len(weights) - 1
    return [
        Layer(
            f"l{i}",
            "OP",
            (f"l{i}",),
            weights={i: 4} if heavy else {},
            near=frozenset(n for n in (i - 1, i + 1) if 0 <= n <= last),
        )
        for i, heavy in enumerate(weights)
    ]


def test_weightless_layers_between_float_layers_become_float() -> None:
    """0 and 3 are float, 1 and 2 have no weights: to quantize them would only convert there and back."""
    chain = _chain(True, False, False, True, False, True)
    assert closed(frozenset({0, 3}), chain) == {0, 1, 2, 3}


def test_weightless_layers_beside_an_int8_layer_stay_int8() -> None:
    """4 stands between the float layer 3 and the int8 layer 5; with no float layer at all nothing changes."""
    chain = _chain(True, False, False, True, False, True)
    assert closed(frozenset({3}), chain) == {3}
    assert closed(frozenset(), _chain(False, False)) == frozenset()


def test_a_segment_is_named_by_its_ends_and_its_ops() -> None:
    """A table shows one row for layers that were measured together."""
    found = layers(_graph())
    assert described([2], found) == ("c2", "CONV_2D")
    assert described([0, 1, 2], found) == ("c1 … c2 (3 layers)", "ADD, 2x CONV_2D")


def test_a_name_that_the_converter_joined_is_shortened_for_people_only() -> None:
    """The table shows the first part; the quantizer needs the whole name."""
    tensors = (_tensor("x"), _tensor("net/relu;net/conv;net/bias"))
    (only,) = layers(Graph("main", tensors, (Op("CONV_2D", 1, (0,), (1,)),), (0,), (1,)))
    assert (only.name, only.outputs) == ("net/relu", ("net/relu;net/conv;net/bias",))
