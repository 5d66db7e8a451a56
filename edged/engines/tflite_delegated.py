"""Which nodes of an interpreter a delegate runs, told from the runtime's own list of nodes.

The runtimes list replaced nodes and DELEGATE nodes side by side without saying which took which. A partition took what
lies between its inputs and its outputs: walk back from its outputs and stop at its inputs. An op that nobody
reads (it assigns a variable) leads to no output: it is told only where nothing else can be meant.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]

_DELEGATE = "DELEGATE"
# They hold graphs of their own, and no delegate takes them.
_BODIES = frozenset({"CALL_ONCE", "IF", "WHILE"})


def listed(interpreter: Any) -> list[Node]:
    """List the nodes of the main graph after allocate_tensors; empty where the runtime does not tell.

    Each has `op_name`, and tensor numbers as `inputs` and `outputs`, negative ones for what is left out.
    """
    details = getattr(interpreter, "_get_ops_details", None)  # private, and in both runtimes
    return [] if details is None else list(details())


def own(nodes: Sequence[Node]) -> list[int]:
    """Return the places in `nodes` of those that stand in the model's file, in its order."""
    return [place for place, node in enumerate(nodes) if node["op_name"] != _DELEGATE]


def delegates(nodes: Sequence[Node]) -> list[Node]:
    """Return the DELEGATE nodes: one for each partition, in the order of their numbers."""
    return [node for node in nodes if node["op_name"] == _DELEGATE]


def taken(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the place in `nodes` of every node that surely stands inside a DELEGATE node → the number of that one."""
    maker = _makers(nodes)
    found: dict[int, int] = {}
    for number, partition in enumerate(delegates(nodes)):
        border, pending = set(numbers(partition["inputs"])), numbers(partition["outputs"])
        while pending:
            place = maker.get(pending.pop())
            if place is not None and place not in found:
                found[place] = number
                pending += [tensor for tensor in numbers(nodes[place]["inputs"]) if tensor not in border]
    for number in sorted(set(range(len(delegates(nodes)))) - set(found.values())):
        # It took something, and only what ends inside it: where there is one such op, that is it.
        inside = list(filter(None, (_with(end, nodes, found, number) for end in _ends(nodes, found))))
        if len(inside) == 1:
            found |= dict.fromkeys(inside[0], number)
    return found


def untold(nodes: Sequence[Node], found: Mapping[int, int], outputs: Collection[int]) -> set[int]:
    """Return the places of nodes that may stand inside a DELEGATE node or may not. outputs: of the graph."""
    ends = [end for end in _ends(nodes, found) if not any(t in outputs for t in numbers(nodes[end]["outputs"]))]
    partitions = range(len(delegates(nodes)) if ends else 0)
    return {place for end in ends for number in partitions for place in _with(end, nodes, found, number)}


def _ends(nodes: Sequence[Node], found: Container[int]) -> list[int]:
    """Return the places not found yet of nodes whose outputs no node reads."""
    read = {tensor for node in nodes for tensor in numbers(node["inputs"])}
    return [p for p in own(nodes) if p not in found and read.isdisjoint(numbers(nodes[p]["outputs"]))]


def _with(end: int, nodes: Sequence[Node], found: Mapping[int, int], number: int) -> set[int]:
    """Return the places that stand in a partition if the node at `end` does; none where it cannot stand there."""
    maker, border = _makers(nodes), set(numbers(delegates(nodes)[number]["inputs"]))
    reached, pending = {end}, [end]
    while pending:
        at = pending.pop()
        if nodes[at]["op_name"] in _BODIES:
            return set()
        for tensor in set(numbers(nodes[at]["inputs"])).difference(border):
            before = maker.get(tensor)
            if before is None or found.get(before, number) != number:
                return set()
            if before not in found and before not in reached:
                reached.add(before)
                pending.append(before)
    return reached


def _makers(nodes: Sequence[Node]) -> dict[int, int]:
    return {tensor: place for place in own(nodes) for tensor in numbers(nodes[place]["outputs"])}


def numbers(tensors: Any) -> list[int]:
    """Return tensor numbers as ints, without those that stand for none."""
    return [int(tensor) for tensor in tensors if tensor >= 0]
