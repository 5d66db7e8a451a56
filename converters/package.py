"""The manifest of a bundle: what was found, measured and chosen, in its place."""

from __future__ import annotations

from pathlib import Path

from converters.found import Found
from converters.options import Options
from edged import bundle
from edged.bundle import Converter, Manifest, Postprocess, Quality, Requirements, TensorSpec


def manifest(
    options: Options,
    found: Found,
    *,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    postprocess: Postprocess,
    loaded_on: tuple[str, ...],
    quality: tuple[Quality, ...],
) -> Manifest:
    """Build the manifest; its list of files is filled in when the bundle is written."""
    return Manifest(
        format=bundle.FORMAT,  # type: ignore[arg-type]  # mypy takes the constant for any int
        name=options.name,
        version=options.version,
        files={},
        signature=found.facts.signature,
        inputs=inputs,
        outputs=outputs,
        quantize=options.quantize,
        preprocess=found.image,
        postprocess=postprocess,
        stateful=found.facts.stateful,
        requirements=Requirements(ops=found.facts.ops, loaded_on=loaded_on),
        quality=quality,
        calibration=found.calibration,
        converter=Converter(versions=found.versions, flags=flags(options, found)),
    )


def flags(options: Options, found: Found) -> dict[str, str]:
    """Return the choices made, as text. Paths shrink to their last part: where a file lay is not what it was."""
    chosen = {
        "model": options.model.name,
        "quantize": options.quantize,
        "signature": found.signature,
        "tags": ",".join(found.tags),
        "io": options.io,
        "batch": str(options.batch),
        "golden": str(options.golden),
        "eval": found.evaluation,
        "calibration": options.calibration and Path(options.calibration).name,
        "shape": " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in sorted(options.shapes.items())),
        "min-agreement": "" if options.min_agreement is None else str(options.min_agreement),
        "max-error": "" if options.max_error is None else str(options.max_error),
    }
    return {name: value for name, value in chosen.items() if value}
