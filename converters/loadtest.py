"""The converted model on the TFLite runtimes that are installed, each in a child process of its own.

A child runs the model twice: with the runtime's own kernels (the reference), and as a device runs it, XNNPACK and all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters import child
from converters.child import DiedError, OnStage
from converters.samples import Array
from edged.clock import now_ns
from edged.engines import tflite_runtime
from edged.engines.tflite_tried import installed_version
from edged.engines.tflite_words import why
from edged.errors import BadDataError, EdgedError, UnavailableError
from edged.limits import Limits

_MODULE = "converters.loadtest"
Arrays = dict[str, Array]


@dataclass(frozen=True)
class Outcome:
    """What one runtime did. runtime: with its version, e.g. `ai-edge-litert 2.3.0`. `reason` is empty when it ran.

    reference, default: output name → [golden samples, *shape] in the model's dtypes, without and with the runtime's
    default delegate. evaluation: all evaluation samples as a device runs them; own_kernels: the same without the
    delegate, on the first runtime that runs. p50_us: the median of one inference on the evaluation samples.
    """

    runtime: str
    reason: str = ""
    reference: Mapping[str, Array] | None = None
    default: Mapping[str, Array] | None = None
    evaluation: Mapping[str, Array] | None = None
    own_kernels: Mapping[str, Array] | None = None
    p50_us: float = 0.0


@dataclass(frozen=True)
class LoadTest:
    """What every runtime runs: the model, and samples in the model's dtypes, input name → [count, *shape]."""

    model: Path
    signature: str
    golden: Mapping[str, Array]
    evaluation: Mapping[str, Array]
    limits: Limits | None = None

    def run_all(self, folder: Path, on_stage: OnStage, names: Collection[str] = ()) -> list[Outcome]:
        """Run on every installed runtime, or on those of `names`; the first that runs is the reference for the others.

        A runtime that cannot run the model has its reason. Raises UnavailableError when none is installed.
        """
        outcomes: list[Outcome] = []
        for runtime in tflite_runtime.installed():
            if not names or runtime.name in names:
                first = not any(outcome.reference for outcome in outcomes)
                outcomes.append(self._run(runtime, folder / runtime.name, on_stage, first=first))
        return outcomes

    def _run(self, runtime: tflite_runtime.Runtime, folder: Path, on_stage: OnStage, *, first: bool) -> Outcome:
        folder.mkdir(parents=True)
        save(folder / "golden.npz", self.golden)
        save(folder / "evaluation.npz", self.evaluation)
        job = {"runtime": runtime.name, "model": str(self.model), "signature": self.signature, "first": first}
        # From the metadata: what dies when it is imported has a version all the same.
        named = f"{runtime.name} {installed_version(runtime)}"
        try:
            said = self._ask(job, folder, on_stage)
        except DiedError as exc:
            return Outcome(named, f"{exc.reason}, twice" if exc.by_chance else exc.reason)
        except EdgedError as exc:
            return Outcome(named, exc.what)
        return Outcome(
            named,
            reference=load(folder / "reference.npz"),
            default=load(folder / "default.npz"),
            evaluation=load(folder / "answers.npz"),
            own_kernels=load(folder / "own.npz") if first else None,
            p50_us=said["p50_us"],
        )

    def _ask(self, job: Mapping[str, Any], folder: Path, on_stage: OnStage) -> dict[str, Any]:
        """Run the child, once more where it was killed from outside or reached a limit: that is no verdict."""
        try:
            return child.run(_MODULE, job, folder, on_stage, self.limits)
        except DiedError as exc:
            if not exc.by_chance:
                raise
            on_stage(f"trying {job['runtime']} again: it {exc.reason}")
        return child.run(_MODULE, job, folder, on_stage, self.limits)


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
    kind = module.OpResolverType
    resolvers = {"reference": kind.BUILTIN_WITHOUT_DEFAULT_DELEGATES, "default": kind.AUTO}
    runners = {name: Runner(module, model, job["signature"], resolver) for name, resolver in resolvers.items()}
    on_stage(f"running the model on {job['runtime']}")
    for name, runner in runners.items():
        save(folder / f"{name}.npz", runner.run(load(folder / "golden.npz")))
    evaluation = load(folder / "evaluation.npz")
    # Fresh ones: a model may keep state from sample to sample, and the SavedModel began here too.
    as_device = Runner(module, model, job["signature"], resolvers["default"])
    save(folder / "answers.npz", as_device.run(evaluation))
    if job["first"]:
        save(folder / "own.npz", Runner(module, model, job["signature"], resolvers["reference"]).run(evaluation))
    return {"p50_us": as_device.p50_us}


class Runner:
    """One model on one runtime, by signature name; samples run in order, from the model's first state.

    keep_tensors: what is computed on the way can be read afterwards; the runtime then delegates little or nothing.
    Raises UnavailableError when the runtime refuses the model.
    """

    def __init__(self, module: Any, model: bytes, signature: str, resolver: Any, *, keep_tensors: bool = False) -> None:
        try:
            self._interpreter = module.Interpreter(
                model_content=model,
                experimental_op_resolver_type=resolver,
                experimental_preserve_all_tensors=keep_tensors,
            )
            self._interpreter.allocate_tensors()
            self._runner = self._interpreter.get_signature_runner(signature)
        # SystemError: tflite-runtime on numpy 2
        except (RuntimeError, ValueError, SystemError, MemoryError) as exc:
            raise UnavailableError("model", f"does not load: {why(exc)}") from exc
        self._taken_ns: list[int] = []

    @property
    def p50_us(self) -> float:
        """The median of one call so far, without the first ones, which warm up."""
        warm = self._taken_ns[len(self._taken_ns) // 10 :]
        return round(float(np.median(warm)) / 1000, 1)

    def run(self, samples: Mapping[str, Array]) -> Arrays:
        """Return output name → [count, *shape]. Raises UnavailableError where it fails, BadDataError for odd shapes."""
        count = len(next(iter(samples.values())))
        answers = [self.run_one({name: array[i] for name, array in samples.items()}) for i in range(count)]
        for name in answers[0]:
            shapes = sorted({answer[name].shape for answer in answers})
            if len(shapes) > 1:
                what = f"output {name!r} has a shape that depends on the data: {list(shapes[0])}, {list(shapes[-1])}"
                raise BadDataError("model", what, "return a fixed shape, for example padded")
        return {name: np.stack([answer[name] for answer in answers]) for name in sorted(answers[0])}

    def run_one(self, sample: Mapping[str, Array]) -> Arrays:
        """Return the outputs for one sample, in the model's dtypes."""
        started = now_ns()
        try:
            answer = self._runner(**sample)
        except (RuntimeError, ValueError) as exc:
            raise UnavailableError("model", f"loads but does not run: {why(exc)}") from exc
        self._taken_ns.append(now_ns() - started)
        return {name: np.array(value) for name, value in answer.items()}

    def tensor(self, number: int) -> Array | None:
        """Return a tensor of the main graph as the last run left it; None where it was never computed."""
        try:
            value: Array = self._interpreter.get_tensor(number)
        except ValueError:
            return None
        return value


if __name__ == "__main__":
    child.main(_work)
