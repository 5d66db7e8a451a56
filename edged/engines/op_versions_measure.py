"""Keeps op_versions.json true: measures the runtimes that are installed here, and compares or writes.

`python -m edged.engines.op_versions_measure` ends with 1 when a runtime differs from the table; `--write` puts what was
measured into it. An environment holds one release of a runtime, so each release is measured from an environment of its
own. Works from Python 3.9 on, like the probe.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edged import childprocess
from edged.engines import op_versions, tflite_runtime

_KINDS = ("builtin", "custom")
_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Measured:
    """What a release has, as the table writes it. ops: `builtin` or `custom` → op → 5 for versions 1 to 5, [2, 4]."""

    name: str
    release: str
    ops: Mapping[str, Mapping[str, Any]]


def measure(name: str) -> Measured:
    """Ask an installed runtime, in a child process. Raises childprocess.NoAnswerError when the child fails."""
    child = childprocess.start_answering("edged.engines.op_versions_probe", name)
    answer = childprocess.answer(child, _TIMEOUT_S)
    builtin = {op: high if low == 1 else [low, high] for op, (low, high) in answer["builtin"].items()}
    return Measured(name, answer["release"], {"builtin": builtin, "custom": dict.fromkeys(answer["custom"], 1)})


def spelled_out(table: Mapping[str, Any]) -> list[Measured]:
    """Return every release of a table with all it has, runtime by runtime, in the table's order."""
    return [
        Measured(name, release, {kind: _at(table[name], kind, i) for kind in _KINDS})
        for name in sorted(table)
        for i, release in enumerate(table[name]["releases"])
    ]


def _at(rows: Mapping[str, Any], kind: str, index: int) -> dict[str, Any]:
    known = rows["releases"][: index + 1]
    found = {op: next((row[r] for r in reversed(known) if r in row), 0) for op, row in rows[kind].items()}
    return {op: value for op, value in found.items() if value}


def merged(table: Mapping[str, Any], measured: Measured) -> dict[str, Any]:
    """Return the table with a release added, or measured anew."""
    others = [one for one in spelled_out(table) if (one.name, one.release) != (measured.name, measured.release)]
    return folded([*others, measured])


def folded(measured: list[Measured]) -> dict[str, Any]:
    """Return the table of some releases: of every op only where it changes."""
    table: dict[str, Any] = {}
    for name in sorted({one.name for one in measured}):
        mine = sorted((one for one in measured if one.name == name), key=lambda one: op_versions.order(one.release))
        table[name] = {"releases": [one.release for one in mine]}
        table[name].update({kind: _changes(kind, mine) for kind in _KINDS})
    return table


def _changes(kind: str, measured: list[Measured]) -> dict[str, Any]:
    rows: dict[str, Any] = {op: {} for op in sorted({op for one in measured for op in one.ops[kind]})}
    for op, row in rows.items():
        last: Any = 0
        for one in measured:
            value = one.ops[kind].get(op, 0)
            if value != last:
                row[one.release] = last = value
    return rows


def differences(table: Mapping[str, Any], measured: Measured) -> list[str]:
    """Say what a measured release has otherwise than the table tells, op by op."""
    told = [one for one in spelled_out(table) if (one.name, one.release) == (measured.name, measured.release)]
    if not told:
        return ["not in the table"]
    return [
        f"{op}: {told[0].ops[kind].get(op, 0)} in the table, {measured.ops[kind].get(op, 0)} measured"
        for kind in _KINDS
        for op in sorted({*told[0].ops[kind], *measured.ops[kind]})
        if told[0].ops[kind].get(op, 0) != measured.ops[kind].get(op, 0)
    ]


def write(path: Path, table: Mapping[str, Any]) -> None:
    """Write a table, an op a line, so that a new release is a short difference to review."""
    runtimes = []
    for name, rows in table.items():
        parts = [
            f'  "releases": {json.dumps(rows["releases"])}',
            *(f'  "{k}": {{\n{_lines(rows[k])}\n  }}' for k in _KINDS),
        ]
        runtimes.append(f'"{name}": {{\n' + ",\n".join(parts) + "\n}")
    path.write_text("{\n" + ",\n".join(runtimes) + "\n}\n", encoding="utf-8")


def _lines(ops: Mapping[str, Any]) -> str:
    return ",\n".join(f'    "{op}": {json.dumps(row)}' for op, row in ops.items())


def main(argv: list[str]) -> int:
    """Compare every installed runtime with the table, or write what was measured into it."""
    parser = argparse.ArgumentParser(prog="python -m edged.engines.op_versions_measure")
    parser.add_argument("--write", action="store_true", help="put what is measured into the table")
    args, different = parser.parse_args(argv), False
    for runtime in tflite_runtime.installed():
        measured, table = measure(runtime.name), op_versions.table()
        found = differences(table, measured)
        different |= bool(found)
        told = "\n".join(f"  {line}" for line in found or ["as in the table"])
        sys.stdout.write(f"{measured.name} {measured.release}: {len(measured.ops['builtin'])} builtin ops\n{told}\n")
        if args.write:
            write(op_versions.FILE, merged(table, measured))
    return int(different and not args.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
