"""Which nodes stand inside a DELEGATE node, told from lists of nodes as the runtimes give them."""

from __future__ import annotations

from typing import Any

import numpy as np

from edged.engines import tflite_delegated


def node(name: str, inputs: list[int], outputs: list[int]) -> dict[str, Any]:
    """A node as both runtimes list it: tensor numbers as NumPy's."""
    return {"op_name": name, "inputs": np.array(inputs, np.int32), "outputs": np.array(outputs, np.int32)}


def test_delegate_nodes_may_stand_anywhere() -> None:
    """Places count in the whole list, and partitions in their own order."""
    nodes = [
        node("DELEGATE", [0], [1]), node("A", [0], [1]), node("B", [1], [2]), node("DELEGATE", [2], [3]),
        node("C", [2], [3]),
    ]  # fmt: skip
    assert tflite_delegated.own(nodes) == [1, 2, 4]
    assert tflite_delegated.taken(nodes) == {1: 0, 4: 1}


def test_what_is_left_out_leads_nowhere() -> None:
    """-1 stands for an output that nobody reads and for an input that is not given: they are not one tensor."""
    nodes = [node("WHILE", [0], [1, -1]), node("CONV", [2, -1], [3]), node("DELEGATE", [2], [3])]
    assert tflite_delegated.taken(nodes) == {1: 0}


def test_a_runtime_that_does_not_tell() -> None:
    """No such call: no nodes, and nobody fails."""
    assert tflite_delegated.listed(object()) == []
    assert tflite_delegated.taken([]) == {}
