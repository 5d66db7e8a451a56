"""The manifest of a bundle: what was found, measured and chosen, in its place."""

from __future__ import annotations

from pathlib import Path

from converters.attempt import Made
from converters.found import Found
from converters.options import Options
from converters.report import Report
from edged import bundle
from edged.bundle import Calibration, Converter, Manifest, Requirements
from edged.engines.tflite_coverage import Coverage


def manifest(made: Made, found: Found, report: Report) -> Manifest:
    """Build the manifest; its list of files is filled in when the bundle is written."""
    options, facts = made.options, made.converted.facts
    return Manifest(
        format=bundle.FORMAT,  # type: ignore[arg-type]  # mypy takes the constant for any int
        name=options.name,
        version=options.version,
        files={},
        signature=facts.signature,
        inputs=made.inputs,
        outputs=made.outputs,
        quantize=options.quantize,
        preprocess=found.image,
        postprocess=made.texts.postprocess,
        stateful=facts.stateful,
        requirements=Requirements(ops=facts.ops, loaded_on=made.loaded_on, delegates=_coverage(report)),
        quality=tuple(parity.quality(report.samples) for parity in made.quality),
        calibration=found.calibration if options.mode.calibrated else Calibration(),
        converter=Converter(versions=found.versions, flags=flags(made, found, report)),
    )


def _coverage(report: Report) -> dict[str, str]:
    """Return delegate → what it takes, in words."""
    return {c.name: c.reason or _takes(c) for c in report.shown.coverage}


def _takes(row: Coverage) -> str:
    taken = f"{row.taken} of {row.total} ops in {row.partitions} parts ({row.how})"
    return f"{row.bound} {taken}" if row.bound else taken


def flags(made: Made, found: Found, report: Report) -> dict[str, str]:
    """Return the choices made, as text. Paths shrink to their last part: where a file lay is not what it was."""
    options, source = made.options, found.source
    chosen = {
        "model": source.path,
        "quantize": options.quantize,
        "asked": report.quantize if report.quantize != options.quantize else "",
        "signature": source.signature,
        "tags": ",".join(source.tags),
        "io": options.io,
        "batch": "open" if options.dynamic_batch else str(options.batch),
        "golden": str(options.golden),
        "eval": found.evaluation,
        "calibration": options.calibration and Path(options.calibration).name,
        "compatible": ", ".join(made.converted.flags),
        "target": ", ".join(options.targets),
        **_given(options),
    }
    return {name: value for name, value in chosen.items() if value}


def _given(options: Options) -> dict[str, str]:
    """Return the flags that are told only where they were given."""
    defaults = Options(options.model, options.output, options.name, options.version)
    told = {
        "shape": " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in sorted(options.shapes.items())),
        "min-agreement": "" if options.min_agreement is None else str(options.min_agreement),
        "max-error": "" if options.max_error is None else str(options.max_error),
    }
    for name in ("max_accuracy_loss", "max_mae_growth", "threshold", "allow_flex", "allow_custom", "search_budget"):
        value = getattr(options, name)
        if value != getattr(defaults, name):
            told[name.replace("_", "-")] = ", ".join(value) if isinstance(value, tuple) else str(value)
    return told
