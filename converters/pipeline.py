"""The stages of one conversion, in order. This process imports no TensorFlow and loads no model: its children do.

check the arguments → TensorFlow child (work) → every runtime in its own child (loadtest) → compare → package.
Nothing is written at the output before the last gate has passed.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters import calibrate, child, golden, loadtest, package, parity, place, plain, savedmodel
from converters.child import DiedError, OnStage
from converters.found import Found
from converters.loadtest import LoadTest, Outcome
from converters.options import Options
from converters.parity import OutputParity
from converters.samples import Array
from converters.texts import Texts
from edged.bundle import Golden, Manifest, TensorSpec
from edged.errors import BadDataError, InternalError, UsageError

_OTHERS = {"int8": "float16 or dynamic", "int16x8": "float16 or dynamic"}


@dataclass(frozen=True)
class Result:
    """What a conversion made, for a person or a program to read."""

    path: Path
    manifest: Manifest
    sizes: Mapping[str, int]
    dtypes: Mapping[str, tuple[int, int]]
    parities: Sequence[OutputParity]
    evaluation: str
    samples: int
    warnings: Sequence[str]


def convert(options: Options, on_stage: OnStage, on_log: Callable[[str], object]) -> Result:
    """Convert and write the bundle.

    on_stage: told of every stage begun. on_log: given what the TensorFlow child printed, when options.verbose.
    Raises UsageError, BadDataError, UnavailableError or InternalError; the output is then as it was before.
    """
    texts = Texts.read(options)
    _check(options)
    with tempfile.TemporaryDirectory(prefix="edged-convert-") as temporary:
        folder = Path(temporary)
        work = _work(options, texts, folder / "work", on_stage, on_log)
        return _Run(options, texts, work, folder).finish(on_stage)


def _check(options: Options) -> None:
    """Refuse in a moment what would otherwise fail after minutes."""
    savedmodel.check_path(options.model)
    place.check_output(options.output, force=options.force)
    mode = options.mode
    if mode.calibrated and not options.calibration:
        hint = "--calibration with 100 or more real samples: .npz, .npy, a directory of images or module:function"
        raise UsageError("--quantize", f"{options.quantize} needs calibration data", hint)
    if options.io == "quantized" and not mode.integer:
        raise UsageError("--io", f"quantized needs integer inputs, --quantize {options.quantize} keeps float32")


def _work(options: Options, texts: Texts, folder: Path, on_stage: OnStage, on_log: Callable[[str], object]) -> Found:
    job = {"options": _plain(options), "cwd": str(Path.cwd()), "image": texts.image}
    try:
        return plain.build(Found, child.run("converters.work", job, folder, on_stage), "converted model")
    except DiedError as exc:
        raise _death(exc, options) from exc
    finally:
        if options.verbose and (folder / "log").exists():
            on_log((folder / "log").read_text(errors="replace"))


def _plain(options: Options) -> dict[str, Any]:
    return {**dataclasses.asdict(options), "model": str(options.model), "output": str(options.output)}


def _death(exc: DiedError, options: Options) -> InternalError:
    hint = ""
    if exc.killed and exc.stage.startswith("converting") and options.quantize in _OTHERS:
        hint = f"--quantize {_OTHERS[options.quantize]} may work; the SavedModel itself is sound"
    what = exc.reason if exc.killed else f"{exc.reason}\n{exc.log}"
    return InternalError(f"TensorFlow on {options.model}", what, hint)


class _Run:
    """What happens after TensorFlow has done its part: load tests, comparison, packaging."""

    def __init__(self, options: Options, texts: Texts, found: Found, folder: Path) -> None:
        self._options, self._texts, self._found, self._folder = options, texts, found, folder
        self._facts = found.facts
        self._warnings = list(found.notes)
        self._inputs = loadtest.load(folder / "work" / "inputs.npz")
        self._floats = loadtest.load(folder / "work" / "floats.npz")
        self._in_specs = tuple(self._spec(spec, spec.shape) for spec in found.facts.inputs)
        # An output's shape is the SavedModel's real one, for the file's may be open.
        self._out_specs = tuple(self._spec(spec, self._floats[spec.name].shape[1:]) for spec in found.facts.outputs)

    def _spec(self, spec: TensorSpec, shape: tuple[int, ...]) -> TensorSpec:
        io: Any = self._options.io if spec.scale else "float"
        return dataclasses.replace(spec, shape=shape, io=io)

    def finish(self, on_stage: OnStage) -> Result:
        picked = golden.pick(self._samples, self._options.golden, in_order=self._facts.stateful)
        self._texts.check_labels(self._out_specs, self._options)
        self._texts = self._texts.with_classes(self._out_specs, self._options)
        outcomes = self._load_test(picked, on_stage)
        on_stage("comparing with the SavedModel")
        chosen = next(outcome for outcome in outcomes if outcome.reference is not None)
        known, agreed = self._golden(chosen, outcomes, picked)
        parities = self._compare(chosen)
        on_stage("writing the bundle")
        manifest = self._manifest(agreed, parities)
        model = (self._folder / "work" / "model.tflite").read_bytes()
        place.write(self._options.output, manifest, self._texts.files(model, known))
        return self._result(manifest, parities, len(model))

    @property
    def _samples(self) -> int:
        return len(next(iter(self._inputs.values())))

    def _load_test(self, picked: Array, on_stage: OnStage) -> list[Outcome]:
        everything = golden.to_model(self._inputs, self._in_specs)
        test = LoadTest(
            self._folder / "work" / "model.tflite",
            self._facts.signature,
            {name: array[picked] for name, array in everything.items()},
            everything,
        )
        outcomes = test.run_all(self._folder, on_stage)
        self._warnings += [f"{o.runtime} cannot serve this model: {o.reason}" for o in outcomes if o.reason]
        return outcomes

    def _golden(self, chosen: Outcome, outcomes: Sequence[Outcome], picked: Array) -> tuple[Golden, list[str]]:
        """Return the golden samples and the runtimes that reproduce them; raises BadDataError when none does."""
        specs = self._out_specs
        self._check_shapes(chosen)
        reference = golden.to_wire(chosen.reference or {}, specs)
        floors = golden.floors(reference, specs, self._options.mode)
        caps = golden.caps(floors)
        found = golden.agreements(outcomes, reference, specs)
        refused = {agreement.runtime: reason for agreement in found if (reason := agreement.beyond(caps))}
        self._warnings += [f"{name} answers wrongly: {reason}" for name, reason in refused.items()]
        agreed = [agreement for agreement in found if agreement.runtime not in refused]
        if not agreed:
            raise BadDataError(
                "converted model", "no runtime reproduces its own reference", "; ".join(refused.values())
            )
        real = [{name: array[picked] for name, array in group.items()} for group in (self._inputs, self._floats)]
        tolerance = golden.tolerances(floors, agreed)
        known = golden.make(real[0], real[1], reference, self._in_specs, tolerance)
        return known, [agreement.runtime for agreement in agreed]

    def _check_shapes(self, chosen: Outcome) -> None:
        for spec in self._out_specs:
            found = (chosen.reference or {})[spec.name].shape[1:]
            if found != spec.shape:
                what = f"output {spec.name!r} has shape {list(found)}, the SavedModel's has {list(spec.shape)}"
                raise BadDataError("converted model", what)

    def _compare(self, chosen: Outcome) -> list[OutputParity]:
        converted = golden.to_real(chosen.evaluation or {}, self._out_specs)
        real_data = self._found.evaluation != calibrate.RANDOM
        parities = parity.compare(self._floats, converted, self._options, real_data=real_data)
        stuck = parity.constant_outputs(self._floats, converted)
        parity.enforce(parities, stuck, self._options)
        return self._with_accuracy(parities, converted)

    def _with_accuracy(self, parities: list[OutputParity], converted: Mapping[str, Array]) -> list[OutputParity]:
        path = self._folder / "work" / "labels.npz"
        classifiers = [p.output for p in parities if "agreement" in p.figures]
        wanted = self._texts.postprocess.output or (classifiers[0] if len(classifiers) == 1 else "")
        if not path.exists() or wanted not in classifiers:
            return parities
        scores = self._floats[wanted]
        labels = loadtest.load(path)["labels"]
        truth = self._texts.class_numbers(labels, self._options.evaluation, scores.size // scores.shape[-1])
        figures = {
            "accuracy_float": parity.accuracy(scores, truth),
            "accuracy": parity.accuracy(converted[wanted], truth),
        }
        return [dataclasses.replace(p, figures={**p.figures, **figures}) if p.output == wanted else p for p in parities]

    def _manifest(self, loaded_on: list[str], parities: Sequence[OutputParity]) -> Manifest:
        return package.manifest(
            self._options,
            self._found,
            inputs=self._in_specs,
            outputs=self._out_specs,
            postprocess=self._texts.postprocess,
            loaded_on=tuple(loaded_on),
            quality=tuple(p.quality(self._samples) for p in parities),
        )

    def _result(self, manifest: Manifest, parities: Sequence[OutputParity], model_size: int) -> Result:
        sizes = {"savedmodel": savedmodel.size(self._options.model), "model": model_size}
        return Result(
            self._options.output,
            manifest,
            sizes,
            self._facts.dtypes,
            parities,
            self._found.evaluation,
            self._samples,
            self._warnings,
        )
