"""Mixed precision: int8 but for the few layers that cost the accuracy. Runs in the child that has imported TensorFlow.

The converter calibrates once; its quantizer then makes a file for any choice of float layers in a fraction of a second.
Every file is run on the runtimes of the fleet, in children of their own, and judged on the evaluation samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from converters import mixed_halves, quantize, truth
from converters.child import OnStage
from converters.compat import CompatFlags
from converters.evaluator import Evaluator
from converters.judge import Judge
from converters.mixed_graph import Layer, layers
from converters.mixed_search import Search, Trial
from converters.options import Options
from converters.report import NOT_RUN, MixedSearch
from converters.samples import Samples
from converters.savedmodel import Loaded
from edged.engines import tflite_file, tflite_runtime
from edged.errors import BadDataError, UnavailableError

_SCORE = "worst margin to a gate"


def search(
    loaded: Loaded,
    options: Options,
    *,
    samples: Samples | None,
    judge: Judge,
    inputs: Path,
    folder: Path,
    on_stage: OnStage,
    flags: CompatFlags,
    runtimes: Sequence[str],
) -> tuple[bytes, MixedSearch]:
    """Return the smallest file found that passes on every runtime, else the best; and what each layer costs.

    samples: what calibrates. inputs: the .npz of the evaluation samples. folder: for files on the way.
    runtimes: names of those that must pass; empty: every one that is here and can take the float model.
    Raises BadDataError where the converter refuses the model, UnavailableError where no runtime is installed.
    """
    on_stage("calibrating for mixed precision")
    quantizer = _Quantizer.calibrated(loaded, options, samples, flags)
    names = runtimes or tuple(runtime.name for runtime in tflite_runtime.installed())
    graph = tflite_file.read(quantizer.model).graphs[0]
    with ExitStack() as stack:
        evaluators = [
            stack.enter_context(Evaluator(name, inputs, folder / name, options.time_limit_s)) for name in names
        ]
        court = _Court(evaluators, judge)
        if not runtimes:
            court.leave_out(quantizer.float_file())

        def tell(tried: int, best: Trial) -> None:
            on_stage(f"searching mixed precision: {tried} of {options.search_budget} tried, {_told(best)}")

        found = Search(layers(graph), quantizer, court.measure, options.search_budget, tell)
        found.run()
    if not found.model:
        raise BadDataError(f"{options.model}", "no mixture of int8 and float layers can be made of it")
    return found.model, MixedSearch(
        score=_SCORE,
        tried=found.tried,
        budget=options.search_budget,
        uniform=float(f"{found.uniform.score:.6g}"),
        final=float(f"{found.best.score:.6g}"),
        costs=found.costs(),
    )


def _told(best: Trial) -> str:
    if best.passed:
        return f"smallest that passes {best.size:,} bytes"
    return f"none passes yet, {_SCORE} {best.score:.3g}" if best.score > NOT_RUN else "none runs yet"


@dataclasses.dataclass(frozen=True)
class _Quantizer:
    """The calibrated float model; called with layers, it makes the file in which those are float."""

    model: bytes
    flags: CompatFlags

    @classmethod
    def calibrated(cls, loaded: Loaded, options: Options, samples: Samples | None, flags: CompatFlags) -> _Quantizer:
        from tensorflow.lite.python.convert import ConverterError  # noqa: PLC0415  # child process only

        converter = quantize.converter(loaded, options, samples, flags)
        # As tf.lite.experimental.QuantizationDebugger does it; there is no public name.
        converter._experimental_calibrate_only = True  # noqa: SLF001
        try:
            return cls(bytes(converter.convert()), flags)
        except (ConverterError, RuntimeError, ValueError) as exc:
            raise quantize.refusal(f"{options.model}, signature {loaded.key!r}", options.quantize, str(exc)) from exc

    def __call__(self, floats: Sequence[Layer]) -> bytes:
        """Raises RuntimeError when the quantizer cannot make it."""
        from tensorflow.lite.python import convert  # noqa: PLC0415  # child process only

        # An op with several outputs has no name for the quantizer: all of its kind stay float, which only moves data.
        kinds = {kind for layer in floats for kind in layer.several} | set(self.flags.float_ops)
        try:
            model: Any = convert.mlir_quantize(
                self.model,
                denylisted_nodes=[name for layer in floats for name in layer.outputs],
                denylisted_ops=sorted(kinds),
                disable_per_channel_for_dense_layers=self.flags.per_tensor_dense,
            )
        except convert.ConverterError as exc:
            raise RuntimeError(str(exc)) from exc
        return mixed_halves.halve(bytes(model))

    def float_file(self) -> bytes:
        """Return the model with every layer float."""
        return mixed_halves.halve(self.model)


class _Court:
    """Files measured on the runtimes; the next runtime is asked only where the one before passes."""

    def __init__(self, evaluators: Sequence[Evaluator], judge: Judge) -> None:
        self._evaluators, self._judge = list(evaluators), judge

    def leave_out(self, model: bytes) -> None:
        """Ask no runtime that cannot pass with the float model: no choice of layers would cure that."""
        able = [evaluator for evaluator in self._evaluators if self._on(evaluator, model)[1]]
        self._evaluators = able or self._evaluators[:1]

    def measure(self, model: bytes) -> tuple[float, bool]:
        """Return the worst score, and whether the gates pass on every runtime."""
        worst = float("inf")
        for evaluator in self._evaluators:
            score, passed = self._on(evaluator, model)
            worst = min(worst, score)
            if not passed:
                return worst, False
        return worst, True

    def _on(self, evaluator: Evaluator, model: bytes) -> tuple[float, bool]:
        facts = truth.read(model)
        try:
            verdict = self._judge.verdict(evaluator.run(model, facts.signature), facts.outputs)
        except (UnavailableError, BadDataError):
            return NOT_RUN, False
        return verdict.score, not verdict.failures
