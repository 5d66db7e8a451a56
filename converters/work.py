"""The one TensorFlow child: load, check the data, run the SavedModel on it, convert, read back.

TensorFlow takes seconds to start, so everything that needs it shares this process.
Writes into its folder: model.tflite, inputs.npz and floats.npz (the evaluation samples and the SavedModel's answers),
labels.npz where there are labels.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from converters import calibrate, child, quantize, savedmodel, truth
from converters.child import OnStage
from converters.found import Found
from converters.loadtest import save
from converters.options import Options
from converters.samples import Array, InputInfo, Samples
from edged.bundle import Calibration, ImagePreprocess
from edged.errors import BadDataError


def run(job: dict[str, Any], folder: Path, on_stage: OnStage) -> dict[str, Any]:
    """Do the job in `folder`; return `Found` as plain values. Raises EdgedError for what a person can mend."""
    options, cwd = restore(job["options"]), Path(job["cwd"])
    on_stage("starting TensorFlow")
    versions = _start_tensorflow()
    on_stage("loading the SavedModel")
    loaded = savedmodel.load(options)
    image = calibrate.complete_image(job["image"], loaded.inputs, options.preprocess) if job["image"] else None
    on_stage("reading samples")
    data = _Data.gather(options, loaded.inputs, image, cwd)
    on_stage(f"converting to {options.quantize}" if options.quantize != "none" else "converting")
    model = quantize.convert(loaded, options, data.calibration, folder)
    on_stage("reading the model back")
    facts = truth.read(model)
    notes = [*data.notes, *truth.check(facts, loaded.inputs, loaded.outputs, options.quantize)]
    # After the conversion: a model with state must be converted with the state it was saved with.
    on_stage("running the SavedModel")
    floats = _answers(loaded, data.evaluation)
    _write(folder, model, data.evaluation, floats)
    found = Found(
        signature=loaded.key,
        tags=loaded.tags,
        versions=versions,
        facts=facts,
        image=image,
        calibration=_described(data.calibration),
        evaluation=data.evaluation.source,
        notes=tuple(notes),
    )
    return dataclasses.asdict(found)


def restore(plain: Mapping[str, Any]) -> Options:
    """Rebuild Options from what JSON made of them."""
    shapes = {name: tuple(shape) for name, shape in plain["shapes"].items()}
    return Options(**{**plain, "model": Path(plain["model"]), "output": Path(plain["output"]), "shapes": shapes})


def _start_tensorflow() -> dict[str, str]:
    """Import TensorFlow, seeded and deterministic; return the versions that made the model."""
    import tensorflow as tf  # noqa: PLC0415  # this process exists for it

    tf.random.set_seed(0)
    tf.config.experimental.enable_op_determinism()
    return {"python": ".".join(map(str, sys.version_info[:3])), "tensorflow": tf.__version__, "numpy": np.__version__}


@dataclasses.dataclass(frozen=True)
class _Data:
    """What calibrates, what is compared, and what there is to say about both."""

    calibration: Samples | None
    evaluation: Samples
    notes: list[str]

    @classmethod
    def gather(cls, options: Options, inputs: tuple[InputInfo, ...], image: ImagePreprocess | None, cwd: Path) -> _Data:
        def load(source: str, *, labels: bool = False) -> Samples:
            return calibrate.load(source, inputs, cwd=cwd, image=image, labels=labels)

        given = load(options.evaluation, labels=True) if options.evaluation else None
        calibration = load(options.calibration) if options.calibration else None
        notes = [*(calibration.notes if calibration else ()), *(given.notes if given else ())]
        if calibration is not None and calibration.count < calibrate.FEW and options.mode.calibrated:
            notes.append(f"{calibration.source}: only {calibration.count} samples; 100 or more calibrate well")
        if given is not None:
            return cls(calibration, given, notes)
        if calibration is not None and not options.mode.calibrated:
            return cls(None, calibration, notes)
        if calibration is not None:
            used, held = calibrate.hold_out(calibration)
            if used is held:
                notes.append("too few samples to hold any out: the quality is measured on the calibration data")
            return cls(used, held, notes)
        notes.append("no --eval and no --calibration: the quality is measured on random inputs")
        return cls(None, calibrate.random_samples(inputs), notes)


def _answers(loaded: savedmodel.Loaded, samples: Samples) -> dict[str, Array]:
    """Return the SavedModel's outputs on every sample, name → [count, *shape]; raises BadDataError for NaN."""
    answers = [loaded({name: a[i] for name, a in samples.arrays.items()}) for i in range(samples.count)]
    for i, answer in enumerate(answers):
        for name, value in answer.items():
            if value.dtype.kind == "f" and np.isnan(value).any():
                raise BadDataError(
                    samples.source,
                    f"the SavedModel itself answers NaN in output {name!r} for sample {i}",
                    "give samples it can answer: --eval",
                )
            if value.shape != answers[0][name].shape:
                raise BadDataError("SavedModel", f"output {name!r} has a shape that depends on the data")
    return {name: np.stack([answer[name] for answer in answers]) for name in sorted(answers[0])}


def _write(folder: Path, model: bytes, samples: Samples, floats: Mapping[str, Array]) -> None:
    (folder / "model.tflite").write_bytes(model)
    save(folder / "inputs.npz", samples.arrays)
    save(folder / "floats.npz", floats)
    if samples.labels is not None:
        save(folder / "labels.npz", {"labels": samples.labels})


def _described(samples: Samples | None) -> Calibration:
    if samples is None:
        return Calibration()
    return Calibration(samples.source, samples.count, calibrate.ranges(samples))


if __name__ == "__main__":
    child.main(run)
