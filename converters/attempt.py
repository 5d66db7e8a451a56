"""One converted file on every runtime that is here: load tests, golden samples, gates. Its verdict is an Attempt."""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from converters import compat, coverage, golden, histograms
from converters.child import OnStage
from converters.compat import Target
from converters.found import Converted
from converters.gates import OutputParity
from converters.golden import Agreement
from converters.judge import Evaluation, Judge
from converters.loadtest import LoadTest, Outcome
from converters.options import Options
from converters.report import Attempt, TargetRun
from converters.samples import Array
from converters.texts import Texts
from edged.bundle import Golden, TensorSpec
from edged.engines import tflite_runtime
from edged.errors import BadDataError

# How a runtime was run: without any delegate, or as a device runs it (XNNPACK for the ops that it takes).
REFERENCE: Final = "reference"
DEVICE: Final = "default"
PASSED: Final = "passed"
REFUSED: Final = "refused"
NOT_RUN: Final = "not run"


@dataclass(frozen=True)
class Bench:
    """What every file is tried on and for. fleet: the targets; a runtime that a person named must pass, of those that
    nobody named one is enough."""

    options: Options
    texts: Texts
    evaluation: Evaluation
    fleet: tuple[Target, ...] = ()

    @property
    def strict(self) -> frozenset[str]:
        """The runtimes that must pass, by package name; empty: any one."""
        return frozenset(compat.runtimes(self.fleet))


@dataclass(frozen=True)
class Made:
    """What the bundle of one mode is packed from. known: its golden samples; quality: on the runtime that is shown."""

    options: Options
    converted: Converted
    model: Path
    texts: Texts
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    known: Golden
    loaded_on: tuple[str, ...]
    quality: tuple[OutputParity, ...]


def try_out(bench: Bench, converted: Converted, model: Path, on_stage: OnStage) -> tuple[Attempt, Made | None]:
    """Try one file. Made is None where it may not ship; the Attempt says why."""
    return _Trial(bench, converted, model, on_stage).run()


class _Trial:
    """One file's way through the tests."""

    def __init__(self, bench: Bench, converted: Converted, model: Path, on_stage: OnStage) -> None:
        self._bench, self._converted, self._model, self._on_stage = bench, converted, model, on_stage
        self._facts = converted.facts
        self._options = dataclasses.replace(bench.options, quantize=converted.quantize)
        self._inputs = tuple(self._spec(spec, spec.shape) for spec in self._facts.inputs)
        # An output's shape is the SavedModel's real one, for the file's may be open.
        self._outputs = tuple(
            self._spec(spec, bench.evaluation.floats[spec.name].shape[1:]) for spec in self._facts.outputs
        )
        self._judge = Judge(bench.evaluation, self._options, self._facts.clamped)

    def _spec(self, spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
        io: Any = self._options.io if spec.scale else "float"
        return dataclasses.replace(spec, shape=shape, io=io)

    def run(self) -> tuple[Attempt, Made | None]:
        picked = golden.pick(self._bench.evaluation.samples, self._options.golden, in_order=self._facts.stateful)
        outcomes = self._load_test(picked)
        self._on_stage(f"comparing {self._options.quantize} with the SavedModel")
        first = next((outcome for outcome in outcomes if outcome.reference is not None), None)
        if first is None:
            return self._attempt([_refused(outcome) for outcome in outcomes], "no installed runtime runs it: "), None
        try:
            return self._compared(first, outcomes, picked)
        except BadDataError as exc:
            return Attempt(self._options.quantize, REFUSED, (f"{exc.where}: {exc.what}",), facts=self._facts), None

    def _load_test(self, picked: Array) -> list[Outcome]:
        everything = golden.to_model(self._bench.evaluation.inputs, self._inputs)
        some = {name: array[picked] for name, array in everything.items()}
        test = LoadTest(self._model, self._facts.signature, some, everything, self._options.limits)
        here = {runtime.name for runtime in tflite_runtime.installed()}
        # Where no runtime of the fleet is here, another one stands in for it: the table judges the fleet's own.
        return test.run_all(self._model.parent / "runtimes", self._on_stage, self._bench.strict & here)

    def _compared(self, first: Outcome, outcomes: Sequence[Outcome], picked: Array) -> tuple[Attempt, Made | None]:
        self._check_shapes(first)
        reference = golden.to_wire(first.reference or {}, self._outputs)
        floors = golden.floors(reference, self._outputs, self._options.mode)
        agreements = golden.agreements(outcomes, reference, self._outputs)
        wrong = {a.runtime: reason for a in agreements if (reason := a.beyond(golden.caps(floors)))}
        on_device = [self._on_device(outcome, wrong.get(outcome.runtime, "")) for outcome in outcomes]
        own = self._target(first.runtime, REFERENCE, first.own_kernels or {})
        attempt = self._attempt(on_device, "", own)
        attempt = dataclasses.replace(
            attempt, histograms=histograms.of(self._bench.evaluation.floats, self._real(first))
        )
        if attempt.state != PASSED:
            return attempt, None
        passed = [run for run in on_device if run.state == PASSED]
        agreed = [a for a in agreements if a.runtime in {run.runtime for run in passed}]
        return attempt, self._made(reference, floors, agreed, picked, passed)

    def _real(self, outcome: Outcome) -> dict[str, Array]:
        return golden.to_real(outcome.evaluation or {}, self._outputs)

    def _check_shapes(self, first: Outcome) -> None:
        for spec in self._outputs:
            found = (first.reference or {})[spec.name].shape[1:]
            if found != spec.shape:
                what = f"output {spec.name!r} has shape {list(found)}, the SavedModel's has {list(spec.shape)}"
                raise BadDataError("converted model", what)

    def _on_device(self, outcome: Outcome, wrong: str) -> TargetRun:
        if outcome.evaluation is None:
            return _refused(outcome)
        run = self._target(outcome.runtime, DEVICE, outcome.evaluation, outcome.p50_us)
        return dataclasses.replace(run, state=REFUSED, reason=f"answers wrongly: {wrong}") if wrong else run

    def _target(self, runtime: str, delegate: str, answers: Mapping[str, Array], p50_us: float = 0.0) -> TargetRun:
        try:
            verdict = self._judge.verdict(answers, self._outputs)
        except BadDataError as exc:
            return TargetRun(runtime, delegate, REFUSED, f"{exc.where}: {exc.what}", p50_us=p50_us)
        why = "; ".join(verdict.failures)
        return TargetRun(runtime, delegate, REFUSED if why else PASSED, why, verdict.outputs, p50_us)

    def _attempt(self, on_device: Sequence[TargetRun], why: str, own: TargetRun | None = None) -> Attempt:
        refused = [run for run in on_device if run.state != PASSED]
        by_table = self._by_table({run.runtime for run in on_device})
        enough = len(refused) < len(on_device) and not self._bench.strict
        reasons = [] if enough else _reasons(on_device, why)
        reasons += [f"{run.runtime} {run.reason}" for run in by_table if run.state == REFUSED]
        reasons += self._useless()
        notes = [f"{run.runtime} cannot serve this model: {run.reason}" for run in refused] if enough else []
        return Attempt(
            self._options.quantize,
            REFUSED if reasons else PASSED,
            tuple(reasons),
            model_bytes=self._model.stat().st_size,
            facts=self._facts,
            targets=(*on_device, *([own] if own else []), *by_table),
            mixed=self._converted.mixed,
            notes=(*self._converted.notes, *notes, *self._unmeasured(), *_saturation(on_device, self._outputs)),
        )

    def _unmeasured(self) -> list[str]:
        """Say which releases that a person named are not known: a slip of the finger looks like one."""
        return [f"--target {target.note}" for target in self._bench.fleet if target.asked and target.note]

    def _by_table(self, proven: Container[str]) -> list[TargetRun]:
        """Judge the runtimes of the fleet that did not run: refused where a person named one that lacks an op."""
        asked = {target.name for target in self._bench.fleet if target.asked}
        judged = compat.judge(*compat.needs(self._facts, self._options.allow_custom), self._bench.fleet)
        return [
            TargetRun(j.target, "", REFUSED if not j.ok and j.target in asked else NOT_RUN, f"{j.words} ({j.how})")
            for j in judged
            if j.target not in proven
        ]

    def _useless(self) -> list[str]:
        """Say which delegates that a person named take nothing of the model."""
        named = compat.delegates(self._bench.fleet)
        return coverage.useless(
            named, self._model, self._on_stage, self._options.limits, compat.runtimes(self._bench.fleet)
        )

    def _made(
        self,
        reference: Mapping[str, Array],
        floors: Mapping[str, float],
        agreed: Sequence[Agreement],
        picked: Array,
        passed: Sequence[TargetRun],
    ) -> Made:
        bench, tolerance = self._bench, golden.tolerances(floors, agreed)
        groups = (bench.evaluation.inputs, bench.evaluation.floats)
        inputs, floats = ({name: array[picked] for name, array in group.items()} for group in groups)
        return Made(
            options=self._options,
            converted=self._converted,
            model=self._model,
            texts=bench.texts.with_classes(self._outputs, self._options),
            inputs=self._inputs,
            outputs=self._outputs,
            known=golden.make(inputs, floats, reference, self._inputs, tolerance),
            loaded_on=tuple(run.runtime for run in passed),
            quality=passed[0].outputs,
        )


def _refused(outcome: Outcome) -> TargetRun:
    return TargetRun(outcome.runtime, DEVICE, REFUSED, outcome.reason)


def _reasons(runs: Sequence[TargetRun], why: str) -> list[str]:
    """Return why it may not ship: once where every runtime says the same, else by runtime."""
    refused = [run for run in runs if run.state != PASSED]
    if len(refused) == len(runs) and len({run.reason for run in refused}) == 1:
        return [why + refused[0].reason]
    return [f"{why}{run.runtime}: {run.reason}" for run in refused]


def _saturation(runs: Sequence[TargetRun], specs: Sequence[TensorSpec]) -> list[str]:
    """Say which outputs cannot hold what the SavedModel answers."""
    shares = {p.output: p.figures.get("saturated", 0.0) for run in runs for p in run.outputs}
    return [
        f"output {spec.name!r}: {shares[spec.name]:.2%} of the SavedModel's values lie beyond what {spec.dtype} holds "
        "here: calibrate with data that has such values"
        for spec in specs
        if shares.get(spec.name)
    ]
