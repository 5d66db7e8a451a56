"""Which ops a delegate runs: read from an interpreter, and told by TFLite's own rule."""

from __future__ import annotations

from typing import Any

import pytest

from edged.engines.tflite_file import Graph, Op, Tensor
from edged.engines.tflite_partitions import cut, cut_in_order, partitions


def graph(*ops: tuple[tuple[int, ...], tuple[int, ...]], resource: tuple[int, ...] = ()) -> Graph:
    """A graph of ops (inputs, outputs) named A, B, …; tensors in `resource` are handles of variables."""
    count = 1 + max(tensor for op in ops for side in op for tensor in side)
    tensors = tuple(
        Tensor(str(number), "resource" if number in resource else "float32", (1,), (1,)) for number in range(count)
    )
    made = tuple(Op(chr(65 + number), 1, *op) for number, op in enumerate(ops))
    return Graph("main", tensors, made, (0,), (count - 1,))


# A → B → C → D in a row, and a side branch E that reads what A makes.
ROW = graph(((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((3,), (4,)), ((1,), (5,)))


class Interpreter:
    """Lists ops as both runtimes do: the file's, then one DELEGATE for each partition."""

    def __init__(self, model: Graph, *delegates: tuple[list[int], list[int]]) -> None:
        self._nodes: list[dict[str, Any]] = [
            {"op_name": op.name, "inputs": list(op.inputs), "outputs": list(op.outputs)} for op in model.ops
        ]
        self._nodes += [{"op_name": "DELEGATE", "inputs": i, "outputs": o} for i, o in delegates]

    def _get_ops_details(self) -> list[dict[str, Any]]:
        return self._nodes


def test_nothing_delegated() -> None:
    """Without a DELEGATE node every op is the CPU's."""
    assert partitions(Interpreter(ROW), ROW)[0] == (-1, -1, -1, -1, -1)


def test_a_partition_reaches_back_to_its_inputs_and_no_further() -> None:
    """C and D lie between tensors 2 and 4; A, B and the side branch do not."""
    assert partitions(Interpreter(ROW, ([2], [4])), ROW) == ((-1, -1, 0, 0, -1), 1)


def test_partitions_are_numbered_in_their_order() -> None:
    """A and the branch E in one, D in the other; B and C between them."""
    found = partitions(Interpreter(ROW, ([0], [1, 5]), ([3], [4])), ROW)
    assert found == ((0, -1, -1, 1, 0), 2)


def test_an_output_that_the_runtime_leaves_out() -> None:
    """The runtimes put -1 for an output of a WHILE that nobody reads; that is still the same op."""
    interpreter = Interpreter(ROW, ([3], [4]))
    interpreter._nodes[4]["outputs"] = [-1]
    assert partitions(interpreter, ROW) == ((-1, -1, -1, 0, -1), 1)


# As TensorFlow writes `v.assign_add(sum(x)); return x + v`: C reads the variable 2, D adds, E assigns, F reads, G adds.
COUNT = graph(
    ((), (2,)), ((0, 1), (3,)), ((2,), (4,)), ((4, 3), (5,)), ((2, 5), ()), ((2,), (6,)), ((0, 6), (7,))
)  # fmt: skip


def test_a_partition_without_outputs() -> None:
    """What LiteRT lists for that model: the second partition holds D and E, and nobody reads what it makes."""
    found = partitions(Interpreter(COUNT, ([0, 1], [2, 3]), ([2, 3, 4], []), ([0, 6], [7])), COUNT)
    assert found == ((0, 0, -1, 1, 1, -1, 2), 3)


def test_a_partition_that_may_be_either_of_two() -> None:
    """Two ops assign the same, one partition: which of them it is cannot be told, and neither is counted to the CPU."""
    twice = graph(((0,), (1,)), ((0,), ()), ((0,), ()))
    assert partitions(Interpreter(twice, ([0], [])), twice) == ((-1, -2, -2), 1)


@pytest.mark.parametrize("other", [graph(((0,), (1,))), graph(*[((0,), (5 - n,)) for n in range(5)])])
def test_another_file_is_refused(other: Graph) -> None:
    """Numbers of one file over ops of another would be silently wrong."""
    with pytest.raises(ValueError, match="other ops"):
        partitions(Interpreter(ROW), other)


def wanted(letters: str, model: Graph = ROW) -> list[bool]:
    return [op.name in letters for op in model.ops]


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("ABCDE", (0, 0, 0, 0, 0)),
        ("", (-1, -1, -1, -1, -1)),
        ("ABDE", (0, 0, -1, 1, 0)),  # E waits for A only: it joins the first piece past the refused C
        ("BDE", (-1, 0, -1, 1, 0)),
        ("CD", (-1, -1, 0, 0, -1)),
    ],
)
def test_cut_by_the_rule(letters: str, expected: tuple[int, ...]) -> None:
    """Ready ops of one kind form a piece; a refused op between two of them makes two pieces."""
    assert cut(ROW, wanted(letters)) == expected


def test_cut_starts_a_second_piece_only_when_it_must() -> None:
    """Two branches, each with a refused op: the halves before them are one piece, those after them another."""
    model = graph(((0,), (1,)), ((1,), (2,)), ((2,), (3,)), ((0,), (4,)), ((4,), (5,)), ((5,), (6,)))
    assert cut(model, wanted("ACDF", model)) == (0, -1, 1, 0, -1, 1)


def test_cut_keeps_the_order_of_side_effects() -> None:
    """C reads a variable that the refused B has written: it may not overtake it. Without the handles it would."""
    edges = (((0,), (1,)), ((1, 4), (2,)), ((0, 4), (3,)))
    assert cut(graph(*edges, resource=(4,)), [True, False, True]) == (0, -1, 1)
    assert cut(graph(*edges), [True, False, True]) == (0, -1, 0)


def test_cut_ends_on_a_graph_that_waits_for_itself() -> None:
    """Two ops that need each other's result: no piece, and no endless loop."""
    assert cut(graph(((1,), (0,)), ((0,), (1,))), [True, True]) == (-1, -1)


def test_cut_passes_over_inputs_that_are_left_out() -> None:
    """-1 is no tensor to wait for."""
    assert cut(graph(((0, -1), (1,)), ((1, -1), (2,))), [True, True]) == (0, 0)


def test_cut_in_order_counts_runs() -> None:
    """A compiler that takes the list as it stands: what comes after a refused op is another piece."""
    assert cut_in_order(wanted("ABDE")) == (0, 0, -1, 1, 1)
    assert cut_in_order(wanted("BE")) == (-1, 0, -1, -1, 1)
    assert cut_in_order([]) == ()
