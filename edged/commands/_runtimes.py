"""Which TFLite runtimes take a model: the installed ones by loading it, the others by the table of op versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delegates.compiledops import COMPILED_OPS
from edged import limits
from edged.engines import op_versions, tflite_nodes, tflite_tried
from edged.engines.tflite_file import ModelFile
from edged.engines.tflite_tried import Tried
from edged.limits import Limits
from edged.shown import WORDS, clipped, listed

# Of all runtimes together.
_TIMEOUT_S = 60.0


def tried(path: Path) -> tuple[Tried, ...]:
    """Load a file with each installed runtime. Whatever the file is, half of the memory that is free stays free."""
    return tflite_tried.tried(path, Limits(_TIMEOUT_S, limits.available() // 2))


def facts(model: ModelFile, runtimes: tuple[Tried, ...]) -> Iterator[dict[str, Any]]:
    """Yield for each known runtime whether it loads the file, and how that is known.

    `{"runtime", "loads", "how": "loaded" or "table", "reason", "lacks", "needs", "since"}`. A runtime that is not
    installed is judged by its newest known release. lacks: ops; since: the oldest known release from which on none
    lacks any op. needs: the delegates that bring all that it lacks, which are an accelerator's own ops.
    """
    custom = [*tflite_nodes.custom_ops(model, flex=True), *tflite_nodes.custom_ops(model, flex=False)]
    builtin = {name: version for name, version in model.versions.items() if name not in custom}
    here = {one.runtime: one for one in runtimes}
    for name in op_versions.RUNTIMES:
        one = here.get(name)
        release = one.name if one and one.version else op_versions.releases(name)[-1]
        lacks = _lacks(builtin, custom, release)
        yield {
            "runtime": one.name if one else release,
            "loads": one.loads if one else not lacks,
            "how": "loaded" if one else "table",
            "reason": one.reason if one else "",
            "lacks": lacks,
            "needs": _needs(builtin, custom, release) if lacks and not (one and one.loads is None) else [],
            "since": (op_versions.oldest(builtin, custom, name) or "").rpartition(" ")[2],
        }


def _lacks(builtin: dict[str, int], custom: list[str], release: str) -> list[str]:
    try:
        return list(map(str, op_versions.missing(builtin, custom, release)))
    except LookupError:  # older than everything that the table knows
        return []


def _needs(builtin: dict[str, int], custom: list[str], release: str) -> list[str]:
    others = [name for name in custom if name not in COMPILED_OPS]
    if _lacks(builtin, others, release):
        return []
    return sorted({COMPILED_OPS[name].delegate for name in custom if name in COMPILED_OPS})


def row(facts: dict[str, Any]) -> list[str]:
    """Return the table row of one runtime: what it did here, and what the table says of it and of older ones."""
    if facts["needs"]:
        by = "" if facts["how"] == "loaded" else " (by the table: it is not installed here)"
        return ["runtime", f"{facts['runtime']} loads it only with the delegate {' and '.join(facts['needs'])}{by}"]
    if facts["how"] == "table":
        words = "has" if facts["loads"] else "lacks"
        told = f"{words} its ops by the table, and was not tried (not installed here)"
    else:
        told = {True: "loads it", False: "does not load it", None: "does not work here"}[facts["loads"]]
    if facts["loads"]:
        told += f"; by the table all since {facts['since']} have its op versions" * bool(facts["since"])
        return ["runtime", f"{facts['runtime']} {told}"]
    return ["runtime", f"{facts['runtime']} {told}: {_why(facts)}"]


def _why(facts: dict[str, Any]) -> str:
    return f"it lacks {listed(map(clipped, facts['lacks']))}" if facts["lacks"] else clipped(facts["reason"], WORDS)
