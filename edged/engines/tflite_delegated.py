"""Which nodes of an interpreter a delegate runs, told from the runtime's own list of nodes.

The runtimes list replaced nodes and DELEGATE nodes side by side without saying which took which. A partition took what
lies between its inputs and its outputs: walk back from its outputs and stop at its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]

_DELEGATE = "DELEGATE"


def listed(interpreter: Any) -> list[Node]:
    """List the nodes of the main graph after allocate_tensors; empty where the runtime does not tell.

    Each has `op_name`, and tensor numbers as `inputs` and `outputs`, negative ones for what is left out.
    """
    details = getattr(interpreter, "_get_ops_details", None)  # private, and in both runtimes
    return [] if details is None else list(details())


def own(nodes: Sequence[Node]) -> list[int]:
    """Return the places in `nodes` of those that stand in the model's file, in its order."""
    return [place for place, node in enumerate(nodes) if node["op_name"] != _DELEGATE]


def taken(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the place in `nodes` of every node that stands inside a DELEGATE node → the number of that partition."""
    maker = {tensor: place for place in own(nodes) for tensor in numbers(nodes[place]["outputs"])}
    found: dict[int, int] = {}
    for number, partition in enumerate(node for node in nodes if node["op_name"] == _DELEGATE):
        border, pending = set(numbers(partition["inputs"])), numbers(partition["outputs"])
        while pending:
            place = maker.get(pending.pop())
            if place is not None and place not in found:
                found[place] = number
                pending += [tensor for tensor in numbers(nodes[place]["inputs"]) if tensor not in border]
    return found


def numbers(tensors: Any) -> list[int]:
    """Return tensor numbers as ints, without those that stand for none."""
    return [int(tensor) for tensor in tensors if tensor >= 0]
