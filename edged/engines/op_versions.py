"""Which op versions each release of each TFLite runtime has: whether a file can load there, told without that runtime.

The table is measured from the runtimes themselves by `op_versions_measure` and kept in `op_versions.json`: runtime →
`releases` in order; `builtin` and `custom`: op → {release: versions from that release on}, where 5 stands for the
versions 1 to 5, [2, 4] for 2 to 4, and 0 for none. An op version says which types and options a kernel may meet; that
it computes the right thing is known only by running it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")
RUNTIMES = ("ai-edge-litert", "tflite-runtime")

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")


@dataclass(frozen=True)
class Missing:
    """An op that a release lacks in the version `needed`. lowest, highest: the versions it has, 0 where it has none."""

    op: str
    needed: int
    highest: int
    lowest: int = 1
    custom: bool = False

    def __str__(self) -> str:
        if self.custom:
            return f"custom op {self.op}"
        has = f"{self.lowest} to {self.highest}" if self.lowest < self.highest else str(self.highest)
        return f"{self.op} version {self.needed}" + (f" (has {has})" if self.highest else " (has none)")


def releases(name: str = "") -> tuple[str, ...]:
    """Return the releases that were measured, oldest first: `tflite-runtime 2.14.0`; of one runtime, or of all."""
    names = (name,) if name else RUNTIMES
    return tuple(f"{runtime} {release}" for runtime in names for release in _releases(runtime))


def judge_of(release: str) -> str:
    """Return the measured release whose table judges `release`: itself, or the newest that is not newer than it.

    A shortened version (`tflite-runtime 2.13`) stands for the oldest release it fits. Raises LookupError where the
    runtime is not known, or the release is older than every one that was measured.
    """
    name, _, version = release.partition(" ")
    if version in _releases(name):
        return release
    fitting = [known for known in _releases(name) if known.startswith(f"{version}.")]
    if fitting:
        return f"{name} {fitting[0]}"
    older = [known for known in _releases(name) if order(known) <= order(version)]
    if not older:
        raise LookupError(f"{release} is older than every release that was measured: {', '.join(_releases(name))}")
    return f"{name} {older[-1]}"


def missing(ops: Mapping[str, int], custom: Iterable[str], release: str) -> tuple[Missing, ...]:
    """Return what a release lacks, by name, builtin ops first; a release that was not measured as `judge_of` says.

    ops: builtin op → the highest version in the file. custom: the custom ops that nobody registers by hand. Raises
    LookupError as `judge_of` does.
    """
    name, _, version = judge_of(release).partition(" ")
    lacking = []
    for op in sorted(ops):
        low, high = _span(name, "builtin", op, version)
        if not low <= ops[op] <= high:
            lacking.append(Missing(op, ops[op], high, low))
    absent = [op for op in sorted(set(custom)) if not _span(name, "custom", op, version)[1]]
    return (*lacking, *(Missing(op, 1, 0, 0, custom=True) for op in absent))


def oldest(ops: Mapping[str, int], custom: Iterable[str], name: str) -> str | None:
    """Return the oldest measured release of a runtime from which on none lacks anything; None when the newest does."""
    custom, found = tuple(custom), None
    for release in reversed(releases(name)):
        if missing(ops, custom, release):
            break
        found = release
    return found


def table() -> dict[str, Any]:
    """Read the table, as the file holds it."""
    value: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return value


_table = functools.cache(table)


def _releases(name: str) -> tuple[str, ...]:
    if name not in RUNTIMES:
        raise LookupError(f"{name} is not a runtime that was measured: {', '.join(RUNTIMES)}")
    return tuple(_table()[name]["releases"])


def _span(name: str, kind: str, op: str, version: str) -> tuple[int, int]:
    """Return the lowest and highest version of an op in a measured release; 0, 0 where it has none."""
    row = _table()[name][kind].get(op, {})
    known = _releases(name)
    since = [release for release in known[: known.index(version) + 1] if release in row]
    value = row[since[-1]] if since else 0
    if isinstance(value, list):
        return value[0], value[1]
    return min(value, 1), value


def order(version: str) -> tuple[int, ...]:
    """Return the numbers a version begins with, so that 2.9.1 comes before 2.10.0."""
    match = _NUMBERS.match(version)
    return tuple(map(int, match[0].split("."))) if match else ()
