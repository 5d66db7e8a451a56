"""How much of a converted model each delegate takes: XNNPACK measured here, every other one by its documents."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from converters.child import OnStage
from edged.engines import tflite_coverage, tflite_file, tflite_runtime, tflite_tried
from edged.engines.tflite_coverage import XNNPACK, Coverage
from edged.engines.tflite_file import ModelFile
from edged.errors import BadDataError
from edged.limits import Limits


def of(model: Path, on_stage: OnStage, limits: Limits) -> tuple[Coverage, ...]:
    """Return a row of each delegate. XNNPACK's is measured by loading the model on every runtime, in child processes.

    A runtime that refuses the model, or dies of it, becomes a row with that reason; one that does not tell is judged by
    its document. limits: of the children. Raises BadDataError when the file cannot be read, UnavailableError when no
    runtime is installed.
    """
    file = read(model)
    tflite_runtime.installed()
    tried = tflite_tried.tried(model, limits, lambda name: on_stage(f"loading the model on {name}"))
    return tflite_coverage.rows(file, tried)


def useless(
    delegates: Collection[str],
    model: Path,
    on_stage: OnStage,
    limits: Limits,
    runtimes: Collection[str],
) -> list[str]:
    """Say of each named delegate that takes nothing of the model why that is so; nothing is read where none is named.

    runtimes: package names of those that a person named: XNNPACK must be of use on each of them. Else one is enough.
    Raises as `of`.
    """
    if not delegates:
        return []
    # Documents cost nothing; runtimes are started only for what they measure.
    rows = of(model, on_stage, limits) if XNNPACK in delegates else tflite_coverage.documented(read(model))
    return [
        f"{row.name}: {row.reason or 'takes no op'}"
        for delegate in delegates
        for row in tflite_coverage.without_use(rows, delegate, runtimes)
    ]


def read(model: Path) -> ModelFile:
    """Read a model file. Raises BadDataError."""
    try:
        return tflite_file.read(tflite_file.content(model))
    except ValueError as exc:
        raise BadDataError(str(model), str(exc)) from exc
