"""How much of a converted model each delegate takes: XNNPACK measured here, every other one by its documents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from converters import child
from converters.child import DiedError, OnStage
from converters.limits import Limits
from converters.report import Coverage, Refusal
from delegates.optables import Table
from edged.engines import tflite_coverage, tflite_file, tflite_partitions, tflite_runtime
from edged.engines.tflite_coverage import Covered
from edged.engines.tflite_file import ModelFile
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError, EdgedError

_MODULE = "converters.coverage"
_XNNPACK = "xnnpack"


def documented(model: ModelFile) -> tuple[Coverage, ...]:
    """Return what each delegate takes by its document, and XNNPACK of the runtimes that are not installed."""
    absent = [tflite_coverage.XNNPACK[r.name] for r in tflite_runtime.RUNTIMES if not r.installed]
    return tuple(_by_table(tflite_coverage.covered(model, table)) for table in (*tflite_coverage.TABLES, *absent))


def _by_table(covered: Covered) -> Coverage:
    refused = tuple(Refusal(*refusal) for refusal in covered.refusals)
    return Coverage(
        delegate=covered.table.name,
        how="documented",
        source=_source(covered.table),
        taken=covered.taken,
        total=len(covered.partition),
        partitions=covered.partitions,
        refused=refused,
        partition=covered.partition if covered.taken else (),
        reason="" if covered.taken or not refused else f"takes no op; {refused[0].op}: {refused[0].reason}",
    )


def _source(table: Table) -> str:
    return f"{table.title}, {table.edition}: {table.source}"


def measured(model: Path, folder: Path, on_stage: OnStage, limits: Limits | None = None) -> tuple[Coverage, ...]:
    """Load the model on every installed runtime, each in a child process; return what its XNNPACK takes.

    A runtime that refuses the model, or dies of it, becomes a Coverage with that reason. Raises BadDataError when the
    file cannot be read, UnavailableError when no runtime is installed. limits: of each child.
    """
    ops = [op.name for op in read(model).graphs[0].ops]
    return tuple(_measured(model, ops, runtime, folder, on_stage, limits) for runtime in tflite_runtime.installed())


def read(model: Path) -> ModelFile:
    """Read a model file. Raises BadDataError."""
    try:
        return tflite_file.read(model.read_bytes())
    except ValueError as exc:
        raise BadDataError(str(model), str(exc)) from exc


def _measured(
    model: Path, ops: Sequence[str], runtime: Runtime, folder: Path, on_stage: OnStage, limits: Limits | None
) -> Coverage:
    job = {"model": str(model.resolve()), "runtime": runtime.name}
    try:
        result = child.run(_MODULE, job, folder / f"coverage-{runtime.name}", on_stage, limits)
    except DiedError as exc:
        return _nothing(runtime, ops, exc.reason)
    except EdgedError as exc:
        return _nothing(runtime, ops, exc.what)
    return _taken(f"{runtime.name} {result['version']}", ops, tuple(result["partition"]))


def _nothing(runtime: Runtime, ops: Sequence[str], reason: str) -> Coverage:
    return Coverage(_XNNPACK, "measured", runtime.name, 0, len(ops), 0, reason=reason)


def _taken(source: str, ops: Sequence[str], partition: tuple[int, ...]) -> Coverage:
    left = Counter(name for name, number in zip(ops, partition, strict=True) if number == tflite_partitions.CPU)
    pieces = set(partition) - {tflite_partitions.CPU}
    return Coverage(
        delegate=_XNNPACK,
        how="measured",
        source=source,
        taken=len(ops) - left.total(),
        total=len(ops),
        partitions=len(pieces),
        refused=tuple(Refusal(name, count) for name, count in left.most_common()),
        partition=partition,
    )


def _look(job: dict[str, Any], _folder: Path, on_stage: OnStage) -> dict[str, Any]:
    """In the child: load the model as a device does, and read its partitions."""
    runtime = tflite_runtime.by_name(job["runtime"])
    path = Path(job["model"])
    on_stage(f"loading it on {runtime.name}")
    try:
        interpreter = runtime.module().Interpreter(model_content=path.read_bytes())
        interpreter.allocate_tensors()
        partition = tflite_partitions.partitions(interpreter, read(path).graphs[0].ops)
    except (RuntimeError, ValueError) as exc:
        raise BadDataError(runtime.name, _first_sentence(str(exc)) or "refuses it without a word") from exc
    return {"version": runtime.version, "partition": partition}


def _first_sentence(text: str) -> str:
    """Leave out what the runtimes add for programmers: the node's number, and advice on building them."""
    return text.strip().partition("\n")[0].partition(". ")[0]


if __name__ == "__main__":
    child.main(_look)
