"""Which TFLite runtimes take a model: the installed ones by loading it, the others by the table of op versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from edged import childprocess
from edged.engines import op_versions, tflite_nodes, tflite_runtime
from edged.engines.tflite_file import ModelFile
from edged.engines.tflite_runtime import Runtime
from edged.errors import ExitCode
from edged.shown import plain

_DESCRIBE = "edged.engines.tflite_describe"
_TIMEOUT_S = 60.0
# Of a runtime's own words, what a row of the table shows; `--json` has them all.
_WORDS = 160


@dataclass(frozen=True)
class Tried:
    """A runtime that is installed here, with the file loaded. runtime: name and version.

    loads: None where the runtime itself does not work. reason: its own words, or how its process ended.
    partition: see `edged.engines.tflite_describe`; None where it does not load, or cannot tell.
    """

    runtime: str
    loads: bool | None
    reason: str = ""
    partition: tuple[int, ...] | None = None


def tried(path: Path) -> tuple[Tried, ...]:
    """Load a file with each installed runtime, each in a child process."""
    return tuple(_try(path.absolute(), runtime) for runtime in tflite_runtime.RUNTIMES if runtime.installed)


def _try(path: Path, runtime: Runtime) -> Tried:
    name = f"{runtime.name} {_version(runtime)}".rstrip()
    with childprocess.start_answering(_DESCRIBE, str(path), runtime.name) as child:
        try:
            partition = childprocess.answer(child, _TIMEOUT_S)["partition"]
        except childprocess.NoAnswerError as exc:
            # Its own words where it refused the model, else how its process ended.
            spoke = exc.said and exc.code in (ExitCode.BAD_DATA, ExitCode.UNAVAILABLE)
            reason = plain(exc.said) if spoke else f"its process {plain(str(exc))}"
            return Tried(name, None if exc.code == ExitCode.UNAVAILABLE else False, reason)
    return Tried(name, loads=True, partition=None if partition is None else tuple(partition))


def _version(runtime: Runtime) -> str:
    """The version that the installer wrote down: nothing of the runtime is run."""
    try:
        return metadata.version(runtime.name)
    except metadata.PackageNotFoundError:  # on the import path, but not installed as a package
        return ""


def facts(model: ModelFile, runtimes: tuple[Tried, ...]) -> Iterator[dict[str, Any]]:
    """Yield for each known runtime whether it loads the file, and how that is known.

    `{"runtime", "loads", "how": "loaded" or "table", "reason", "lacks", "since"}`. A runtime that is not installed is
    judged by its newest known release. lacks: ops; since: the oldest known release from which on none lacks any op.
    """
    custom = [*tflite_nodes.custom_ops(model, flex=True), *tflite_nodes.custom_ops(model, flex=False)]
    builtin = {name: version for name, version in model.versions.items() if name not in custom}
    here = {one.runtime.partition(" ")[0]: one for one in runtimes}
    for name in op_versions.RUNTIMES:
        one = here.get(name)
        release = one.runtime if one and " " in one.runtime else op_versions.releases(name)[-1]
        lacks = _lacks(builtin, custom, release)
        yield {
            "runtime": one.runtime if one else release,
            "loads": one.loads if one else not lacks,
            "how": "loaded" if one else "table",
            "reason": one.reason if one else "",
            "lacks": lacks,
            "since": (op_versions.oldest(builtin, custom, name) or "").rpartition(" ")[2],
        }


def _lacks(builtin: dict[str, int], custom: list[str], release: str) -> list[str]:
    try:
        return list(map(str, op_versions.missing(builtin, custom, release)))
    except LookupError:  # older than everything that the table knows
        return []


def row(facts: dict[str, Any]) -> list[str]:
    """Return the table row of one runtime."""
    words = {True: "loads it", False: "does not load it", None: "does not work here"}[facts["loads"]]
    if facts["how"] == "table":
        words += " by its op versions (not installed here)"
    if facts["loads"]:
        return [
            "runtime",
            f"{facts['runtime']} {words}" + (f"; so do all since {facts['since']}" * bool(facts["since"])),
        ]
    return ["runtime", f"{facts['runtime']} {words}: {_why(facts)}"]


def _why(facts: dict[str, Any]) -> str:
    if facts["lacks"]:
        return f"it lacks {'; '.join(facts['lacks'])}"
    reason: str = facts["reason"]
    return reason if len(reason) <= _WORDS else f"{reason[:_WORDS]}…"
