"""The one TensorFlow child: load, check the data, convert one mode after the other, run the SavedModel.

TensorFlow takes seconds to start, so everything that needs it shares this process. Writes into its folder inputs.npz,
floats.npz (the evaluation samples and the SavedModel's answers) and labels.npz where there are labels; and for every
mode MODE/model.tflite and MODE/converted.json, which holds `Converted` or the error. What is there is not made again.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from converters import (
    answers,
    calibrate,
    child,
    compat,
    conversions,
    imagesource,
    labels,
    mixed,
    plain,
    quantize,
    ranges,
    savedmodel,
    sources,
    truth,
)
from converters.child import OnStage
from converters.found import Converted, Found
from converters.judge import Evaluation, Judge
from converters.loadtest import save
from converters.options import MODES, Options
from converters.report import MixedSearch
from converters.samples import InputInfo, Samples
from edged.bundle import Calibration, ImagePreprocess, Postprocess
from edged.engines import tflite_runtime
from edged.errors import BadDataError, EdgedError

_KIND = (
    "the layers that stay float were chosen on the samples that are compared: the figures are a little too kind; "
    "measure the bundle on fresh data"
)


def run(job: dict[str, Any], folder: Path, on_stage: OnStage) -> dict[str, Any]:
    """Do the job in `folder`; return `Found` as plain values. Raises EdgedError for what a person can mend."""
    options, cwd = Options.from_plain(job["options"]), Path(job["cwd"])
    on_stage("starting TensorFlow")
    versions = _start_tensorflow()
    on_stage("loading the SavedModel")
    loaded = savedmodel.load(options, folder)
    image = imagesource.complete_image(job["image"], loaded.inputs, options.preprocess) if job["image"] else None
    # Named here: a function of the user's may end the process without a word.
    on_stage(" from ".join(filter(None, ("reading samples", _sources(options)))))
    data = _Data.gather(options, loaded.inputs, image, cwd)
    task = _Task(job, options, loaded, data, folder, on_stage)
    # A model with state must be converted with the state it was saved with: it runs after, a search needs its answers.
    searched = [mode for mode in job["modes"] if MODES[mode].searched]
    for mode in job["modes"]:
        if mode not in searched:
            task.convert(mode)
    task.run_savedmodel()
    evaluation = task.evaluation()
    for mode in searched:
        task.convert(mode)
    calibration = _described(data.calibration)
    outside = ranges.outside(calibration.ranges, data.evaluation)
    doubts = labels.doubts(evaluation.labels, evaluation.floats, options.evaluation)
    found = Found(
        source=loaded.source,
        versions=versions,
        image=image,
        calibration=calibration,
        evaluation=data.evaluation.source,
        real_data=not data.evaluation.random,
        outside={one.input: one.samples for one in outside},
        notes=(*loaded.notes, *data.notes, *(ranges.warnings(outside) if options.calibrated else ()), *doubts),
    )
    return dataclasses.asdict(found)


def _sources(options: Options) -> str:
    return " and ".join(dict.fromkeys(filter(None, (options.calibration, options.evaluation))))


def _start_tensorflow() -> dict[str, str]:
    """Import TensorFlow, seeded and deterministic; return the versions that made the model."""
    import tensorflow as tf  # noqa: PLC0415  # this process exists for it

    tf.random.set_seed(0)
    tf.config.experimental.enable_op_determinism()
    return {"python": ".".join(map(str, sys.version_info[:3])), "tensorflow": tf.__version__, "numpy": np.__version__}


@dataclasses.dataclass(frozen=True)
class _Task:
    """What converting one mode, or running the SavedModel, needs."""

    job: Mapping[str, Any]
    options: Options
    loaded: savedmodel.Loaded
    data: _Data
    folder: Path
    on_stage: OnStage

    def convert(self, mode: str) -> None:
        """Convert one mode and leave its result in its folder: what becomes of it is no matter of the other modes."""
        folder = self.folder / mode
        folder.mkdir(exist_ok=True)
        (folder / conversions.BEGUN).touch()
        self.on_stage("converting" if mode == "none" else f"converting to {mode}")
        options = dataclasses.replace(self.options, quantize=mode)
        try:
            result: dict[str, Any] = dataclasses.asdict(self._converted(options, folder))
        except EdgedError as exc:
            result = {"error": child.plain_error(exc)}
        (folder / conversions.RESULT).write_text(json.dumps(result))

    def _converted(self, options: Options, folder: Path) -> Converted:
        """Convert, and once more with compatible flags where a runtime of the fleet lacks an op's version."""
        made = self._checked(options, folder, compat.CompatFlags())
        needs = compat.needs(made.facts, options.allow_custom)
        cure = compat.cure(compat.judge(*needs, compat.targets(options.targets)), options.quantize)
        # A search has run its files on the runtimes themselves.
        if cure is None or options.mode.searched:
            return made
        self.on_stage(f"converting to {options.quantize} again: {', '.join(cure.words())}")
        try:
            return self._checked(options, folder, cure)
        except BadDataError as exc:
            note = f"{', '.join(cure.words())}: would load on more runtimes, but {exc.what}"
            return dataclasses.replace(made, notes=(*made.notes, note))

    def _checked(self, options: Options, folder: Path, flags: compat.CompatFlags) -> Converted:
        """Convert once; the file is kept when it is what was asked for. Raises BadDataError when it is not."""
        model, found = self._once(options, folder, flags)
        facts, loaded = truth.read(model, options.quantize), self.loaded
        inputs, outputs, flex, custom = loaded.inputs, loaded.outputs, options.allow_flex, options.allow_custom
        notes = truth.check(facts, inputs, outputs, options.quantize, allow_flex=flex, allow_custom=custom)
        (folder / conversions.MODEL).write_bytes(model)
        chosen = (_KIND,) if found is not None and found.tried > 1 else ()
        return Converted(options.quantize, facts, flags.words(), found, (*flags.words(), *chosen, *notes))

    def _once(self, options: Options, folder: Path, flags: compat.CompatFlags) -> tuple[bytes, MixedSearch | None]:
        if not options.mode.searched:
            return quantize.convert(self.loaded, options, self.data.calibration, flags), None
        here = {runtime.name for runtime in tflite_runtime.installed()}
        asked = set(compat.runtimes(compat.targets(options.targets)))
        return mixed.search(
            self.loaded,
            options,
            samples=self.data.calibration,
            judge=Judge(self.evaluation(), options),
            inputs=self.folder / "inputs.npz",
            folder=folder,
            on_stage=self.on_stage,
            flags=flags,
            runtimes=sorted(here & asked),
        )

    def evaluation(self) -> Evaluation:
        """Return what `run_savedmodel` left; raises BadDataError for labels that fit no output."""
        job, real = self.job, not self.data.evaluation.random
        post = plain.build(Postprocess, job["postprocess"], self.options.postprocess)
        return Evaluation.read(self.folder, job["labels"], post.output, self.options.evaluation, real_data=real)

    def run_savedmodel(self) -> None:
        """Run the SavedModel on the evaluation samples, once for all modes."""
        if (self.folder / "floats.npz").exists():
            return
        self.on_stage("running the SavedModel")
        floats = answers.of(self.loaded, self.data.evaluation)
        save(self.folder / "inputs.npz", self.data.evaluation.arrays)
        if self.data.evaluation.labels is not None:
            save(self.folder / "labels.npz", {"labels": self.data.evaluation.labels})
        save(self.folder / "floats.npz", floats)


@dataclasses.dataclass(frozen=True)
class _Data:
    """What calibrates, what is compared, and what there is to say about both."""

    calibration: Samples | None
    evaluation: Samples
    notes: list[str]

    @classmethod
    def gather(cls, options: Options, inputs: tuple[InputInfo, ...], image: ImagePreprocess | None, cwd: Path) -> _Data:
        def load(source: str, *, labels: bool = False) -> Samples:
            return sources.load(source, inputs, cwd=cwd, image=image, labels=labels)

        given = load(options.evaluation, labels=True) if options.evaluation else None
        calibration = load(options.calibration) if options.calibration else None
        notes = [*(calibration.notes if calibration else ()), *(given.notes if given else ())]
        used, evaluation = _shared_out(options, calibration, given)
        calibrate.check(used, calibrated=options.calibrated)
        if evaluation is None:
            notes.append("no --eval and no --calibration: the quality is measured on random inputs")
            evaluation = calibrate.random_samples(inputs)
        notes += calibrate.warnings(used, evaluation, calibrated=options.calibrated)
        return cls(used, evaluation, [*notes, *calibrate.compared(evaluation)])


def _shared_out(
    options: Options, calibration: Samples | None, given: Samples | None
) -> tuple[Samples | None, Samples | None]:
    """Return (what calibrates, what is compared); without --eval the calibration data serves both ends."""
    if given is not None or calibration is None:
        return calibration, given
    return calibrate.hold_out(calibration) if options.calibrated else (None, calibration)


def _described(samples: Samples | None) -> Calibration:
    if samples is None:
        return Calibration()
    return Calibration(samples.source, samples.count, ranges.ranges(samples))


if __name__ == "__main__":
    child.main(run)
