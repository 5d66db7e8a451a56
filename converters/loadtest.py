"""The converted model on the TFLite runtimes that are installed, each in a child process of its own.

A child runs the model twice: with the runtime's own kernels (the reference), and as a device runs it, XNNPACK and all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters import child
from converters.child import DiedError, OnStage
from converters.samples import Array
from edged.engines import tflite_runtime
from edged.errors import BadDataError, EdgedError, UnavailableError

_MODULE = "converters.loadtest"
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Outcome:
    """What one runtime did. `reason` is empty when it ran.

    reference, default: output name → [golden samples, *shape] in the model's dtypes, without and with the runtime's
    default delegate. evaluation: the reference kernels on the evaluation samples, where they were given.
    """

    runtime: str
    reason: str = ""
    reference: Mapping[str, Array] | None = None
    default: Mapping[str, Array] | None = None
    evaluation: Mapping[str, Array] | None = None


@dataclass(frozen=True)
class LoadTest:
    """What every runtime runs: the model, and samples in the model's dtypes, input name → [count, *shape]."""

    model: Path
    signature: str
    golden: Mapping[str, Array]
    evaluation: Mapping[str, Array]

    def run_all(self, folder: Path, on_stage: OnStage) -> list[Outcome]:
        """Run on every installed runtime; the first that runs is the reference and gets the evaluation samples too.

        Raises UnavailableError when no runtime is installed, BadDataError with each reason when none runs the model.
        """
        outcomes: list[Outcome] = []
        for runtime in tflite_runtime.installed():
            first = not any(outcome.reference for outcome in outcomes)
            outcomes.append(self._run(runtime, folder / runtime.name, on_stage, with_evaluation=first))
        if not any(outcome.reference for outcome in outcomes):
            reasons = "; ".join(f"{outcome.runtime}: {outcome.reason}" for outcome in outcomes)
            raise BadDataError("converted model", "no installed runtime runs it", reasons)
        return outcomes

    def _run(
        self, runtime: tflite_runtime.Runtime, folder: Path, on_stage: OnStage, *, with_evaluation: bool
    ) -> Outcome:
        folder.mkdir(parents=True)
        samples = {"golden": self.golden} | ({"evaluation": self.evaluation} if with_evaluation else {})
        for name, arrays in samples.items():
            save(folder / f"{name}.npz", arrays)
        job = {
            "runtime": runtime.name,
            "model": str(self.model),
            "signature": self.signature,
            "samples": list(samples),
        }
        try:
            version = child.run(_MODULE, job, folder, on_stage)["version"]
        except DiedError as exc:
            return Outcome(runtime.name, exc.reason)
        except EdgedError as exc:
            return Outcome(runtime.name, exc.what)
        answers = {name: load(folder / f"{name}.npz") for name in ("reference", "default")}
        evaluation = load(folder / "answers.npz") if with_evaluation else None
        return Outcome(f"{runtime.name} {version}", "", answers["reference"], answers["default"], evaluation)


def save(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name, whatever the names are."""
    # The prefix keeps a tensor called `file` from being taken for savez's own parameter.
    np.savez(path, **{f"a/{name}": array for name, array in arrays.items()})


def load(path: Path) -> Arrays:
    """Read what `save` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return {key.removeprefix("a/"): file[key] for key in file.files}


def _work(job: dict[str, Any], folder: Path, on_stage: OnStage) -> dict[str, Any]:
    """Be the child: write reference.npz and default.npz (golden samples), and answers.npz (evaluation samples)."""
    on_stage(f"loading the model on {job['runtime']}")
    runtime = tflite_runtime.by_name(job["runtime"])
    module, model = runtime.module(), Path(job["model"]).read_bytes()
    resolvers = {
        "reference": module.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        "default": module.OpResolverType.AUTO,
    }
    runners = {name: _Runner(module, model, job["signature"], resolver) for name, resolver in resolvers.items()}
    on_stage(f"running the model on {job['runtime']}")
    for name, runner in runners.items():
        save(folder / f"{name}.npz", runner.run(load(folder / "golden.npz")))
    if "evaluation" in job["samples"]:
        # A fresh one: a model may keep state from sample to sample, and the SavedModel began here too.
        runner = _Runner(module, model, job["signature"], resolvers["reference"])
        save(folder / "answers.npz", runner.run(load(folder / "evaluation.npz")))
    return {"version": runtime.version}


class _Runner:
    """One model on one runtime, by signature name; samples run in order, from the model's first state."""

    def __init__(self, module: Any, model: bytes, signature: str, resolver: Any) -> None:
        try:
            self._interpreter = module.Interpreter(model_content=model, experimental_op_resolver_type=resolver)
            self._interpreter.allocate_tensors()
            self._runner = self._interpreter.get_signature_runner(signature)
        # SystemError: tflite-runtime on numpy 2
        except (RuntimeError, ValueError, SystemError, MemoryError) as exc:
            raise UnavailableError("model", f"does not load: {_one_line(exc)}") from exc

    def run(self, samples: Mapping[str, Array]) -> Arrays:
        count = len(next(iter(samples.values())))
        answers = [self._one({name: array[i] for name, array in samples.items()}) for i in range(count)]
        for name in answers[0]:
            shapes = sorted({answer[name].shape for answer in answers})
            if len(shapes) > 1:
                what = f"output {name!r} has a shape that depends on the data: {list(shapes[0])}, {list(shapes[-1])}"
                raise BadDataError("model", what, "return a fixed shape, for example padded")
        return {name: np.stack([answer[name] for answer in answers]) for name in sorted(answers[0])}

    def _one(self, sample: Mapping[str, Array]) -> Arrays:
        try:
            return {name: np.array(value) for name, value in self._runner(**sample).items()}
        except (RuntimeError, ValueError) as exc:
            raise UnavailableError("model", f"loads but does not run: {_one_line(exc)}") from exc


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__


if __name__ == "__main__":
    child.main(_work)
