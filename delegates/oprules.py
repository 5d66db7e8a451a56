"""What a table of a delegate's documented ops can state, and whether an op is taken by it.

A table holds what a document states and nothing else. `accepts` checks what a model file shows (op, dtypes, ranks,
constant inputs, fused activation, open dimensions). Limits of an op's attributes (strides, axes, kernel sizes) are not
checked: they are in `Rule.note`. So an op that is refused here is refused there; an op that is taken here may still be
left to the CPU, which is why a measurement is worth more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

EIGHT_BIT = frozenset({"int8", "uint8"})


@dataclass(frozen=True)
class Tensor:
    """A tensor of an op. dtype: numpy's name, e.g. `int8`. shape: -1 for an open dimension. constant: has its data."""

    dtype: str
    shape: tuple[int, ...] = ()
    constant: bool = False


@dataclass(frozen=True)
class OpFacts:
    """An op of a model file. name: in capitals (`CONV_2D`) or a custom op's own. activation: fused, "" for none.

    inputs: None stands for one that is left out.
    """

    name: str
    inputs: Sequence[Tensor | None]
    outputs: Sequence[Tensor]
    custom: bool = False
    activation: str = ""

    @property
    def computed(self) -> tuple[Tensor, ...]:
        """Inputs that are no constants, and outputs: the data that flows."""
        return tuple(t for t in self.inputs if t is not None and not t.constant) + tuple(self.outputs)


@dataclass(frozen=True)
class Rule:
    """What one op must be. dtypes: of the data that flows, in place of the table's. None: not limited.

    activations: the fused ones that are taken besides none. ranks: of the first input. constant, computed: numbers of
    inputs that must be, or must not be, constants (where they are there). note: limits that are not checked.
    """

    dtypes: frozenset[str] | None = None
    activations: frozenset[str] | None = None
    ranks: frozenset[int] | None = None
    constant: tuple[int, ...] = ()
    computed: tuple[int, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A delegate's documented ops. source: the document's address. edition: its date or version.

    dtypes: of the data that flows; None where the document names no limit. never: dtypes that no input may have, not
    even a constant. max_rank: 0 is no limit. inner: dimensions before the last `inner` ones must be 1 (0: no limit).
    static: no open dimension. in_order: a compiler that cuts the list of ops as it stands in the file, where TFLite
    gathers what is ready. most, keep: how many partitions it takes (0: all), and which. runtime: the package that
    brings the delegate along, and can measure it where it is installed; "" for a library or a compiler of its own.
    """

    name: str
    title: str
    source: str
    edition: str
    ops: Mapping[str, Rule] = field(repr=False)
    dtypes: frozenset[str] | None = None
    never: frozenset[str] = frozenset()
    max_rank: int = 0
    inner: int = 0
    static: bool = False
    in_order: bool = False
    most: int = 0
    keep: Literal["first", "largest"] = "largest"
    runtime: str = ""

    @property
    def document(self) -> str:
        """The title, edition and address, for a person: no two tables have the same."""
        return f"{self.title}, {self.edition}: {self.source}"


def rules(names: str, rule: Rule | None = None, **special: Rule) -> dict[str, Rule]:
    """Return {name: rule} of the names in a text, with the special ones in place of (or added to) them."""
    return {**dict.fromkeys(names.split(), rule or Rule()), **special}


def accepts(table: Table, op: OpFacts) -> str:
    """Return why the delegate leaves this op to the CPU, or "" when by its document it may take it."""
    rule = None if op.custom else table.ops.get(op.name)
    if rule is None:
        return "not in its table"
    return next(filter(None, _reasons(table, rule, op)), "")


def _reasons(table: Table, rule: Rule, op: OpFacts) -> Iterable[str]:
    yield _constants(rule, op)  # before the dtypes: a bias that is computed is no wrong dtype
    yield _dtype(table.dtypes if rule.dtypes is None else rule.dtypes, op.computed)
    yield _never(table.never, op)
    yield _open(op) if table.static else ""
    yield _rank(table, rule, op)
    yield _activation(rule, op)


def _dtype(allowed: frozenset[str] | None, tensors: Iterable[Tensor]) -> str:
    found = {} if allowed is None else dict.fromkeys(t.dtype for t in tensors if t.dtype not in allowed)
    return f"{next(iter(found))} (takes {', '.join(sorted(allowed or ()))})" if found else ""


def _never(never: frozenset[str], op: OpFacts) -> str:
    return next((f"{t.dtype} input" for t in op.inputs if t is not None and t.dtype in never), "")


def _open(op: OpFacts) -> str:
    return "open dimension" if any(-1 in t.shape for t in op.computed) else ""


def _rank(table: Table, rule: Rule, op: OpFacts) -> str:
    first = op.inputs[0] if op.inputs else None
    if rule.ranks is not None and first is not None and len(first.shape) not in rule.ranks:
        return f"rank {len(first.shape)} (takes {' or '.join(map(str, sorted(rule.ranks)))})"
    for tensor in op.computed:
        if table.max_rank and len(tensor.shape) > table.max_rank:
            return f"rank {len(tensor.shape)} (takes up to {table.max_rank})"
        if table.inner and any(size != 1 for size in tensor.shape[: -table.inner]):
            return f"more than {table.inner} dimensions above 1"
    return ""


def _activation(rule: Rule, op: OpFacts) -> str:
    refused = op.activation and rule.activations is not None and op.activation not in rule.activations
    return f"fused {op.activation}" if refused else ""


def _constants(rule: Rule, op: OpFacts) -> str:
    for wanted, numbers in ((True, rule.constant), (False, rule.computed)):
        for number in numbers:
            tensor = op.inputs[number] if number < len(op.inputs) else None
            if tensor is not None and tensor.constant is not wanted:
                return f"input {number} is {'computed' if wanted else 'a constant'}"
    return ""
