"""Texts in, bundle out: a person's small files checked early, the manifest built, the bundle put in its place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from converters.options import Options
from converters.samples import Array
from edged import bundle, schema, topics, yamlload
from edged.bundle import (
    Calibration,
    Converter,
    Golden,
    ImagePreprocess,
    InputRange,
    Manifest,
    Postprocess,
    Quality,
    Requirements,
    TensorSpec,
)
from edged.errors import BadDataError, UsageError

T = TypeVar("T")


@dataclass(frozen=True)
class Texts:
    """The small files a person gives. image: the plain mapping of --preprocess, completed once the model is known."""

    labels: tuple[str, ...]
    image: Mapping[str, Any] | None
    postprocess: Postprocess

    @classmethod
    def read(cls, options: Options) -> Texts:
        """Read them; raises BadDataError, UsageError or ConfigError with every problem."""
        if not topics.valid_level(options.name):
            raise UsageError("--name", f"{options.name!r} cannot be part of a topic", "no /, + or #, 1 to 255 bytes")
        labels = _labels(Path(options.labels)) if options.labels else ()
        image = _mapping(options.preprocess) if options.preprocess else None
        if image is not None:
            # What the model will fill in stands in for a moment, so that every other mistake shows now.
            _build(ImagePreprocess, {"input": "", "width": 1, "height": 1, **image}, options.preprocess)
        post = _build(Postprocess, _mapping(options.postprocess), options.postprocess) if options.postprocess else None
        return cls(labels, image, post or Postprocess())

    def files(self, model: bytes, golden: Golden) -> dict[str, bytes]:
        """Return the bundle's files."""
        files = {bundle.MODEL: model, bundle.GOLDEN: golden.to_bytes()}
        if self.labels:
            files[bundle.LABELS] = ("\n".join(self.labels) + "\n").encode()
        return files

    def check_labels(self, outputs: Sequence[TensorSpec], options: Options) -> None:
        """Raise BadDataError unless an output (the one --postprocess names) has as many classes as there are labels."""
        name = self.postprocess.output
        named = [spec for spec in outputs if name in ("", spec.name)]
        if not named:
            listed = ", ".join(spec.name for spec in outputs)
            raise BadDataError(options.postprocess, f"output: no output {name!r}", f"outputs: {listed}")
        if self.labels and not any(spec.shape[-1:] == (len(self.labels),) for spec in named):
            listed = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in named)
            raise BadDataError(options.labels, f"{len(self.labels)} labels fit no output: {listed}")

    def class_numbers(self, truth: Array, source: str) -> Array:
        """Return class numbers for the evaluation's labels, which are numbers or names of --labels."""
        if truth.dtype.kind in "iu":
            return truth
        if truth.dtype.kind != "U" or not self.labels:
            raise BadDataError(source, f"labels of dtype {truth.dtype}", "class numbers, or names with --labels")
        unknown = sorted(set(truth.ravel().tolist()) - set(self.labels))
        if unknown:
            raise BadDataError(source, f"label {unknown[0]!r} is not in --labels")
        numbers: Array = np.vectorize(self.labels.index, otypes=[np.int64])(truth)
        return numbers


def _labels(path: Path) -> tuple[str, ...]:
    lines = _text(str(path)).splitlines()
    empty = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    if not lines or empty is not None:
        raise BadDataError(
            str(path), "holds no label" if not lines else f"line {empty} is empty", "one class name a line"
        )
    return tuple(line.strip() for line in lines)


def _text(source: str) -> str:
    try:
        return Path(source).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise BadDataError(source, f"cannot be read: {getattr(exc, 'strerror', None) or exc}") from exc


def _mapping(source: str) -> Mapping[str, Any]:
    """Read a YAML or JSON file (JSON is YAML) that must hold a mapping."""
    value = yamlload.parse(_text(source), source).value
    if not isinstance(value, Mapping):
        raise BadDataError(source, "is no mapping of keys to values")
    return value


def _build(cls: type[T], value: Mapping[str, Any], source: str) -> T:
    built, problems = schema.build(cls, value)
    if built is None or problems:
        raise BadDataError(source, "; ".join(f"{p.path}: {p.message}" for p in problems))
    return built


def manifest(
    options: Options,
    found: Mapping[str, Any],
    *,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    postprocess: Postprocess,
    loaded_on: tuple[str, ...],
    quality: tuple[Quality, ...],
) -> Manifest:
    """Build the manifest. `found` is what the TensorFlow child told."""
    facts = found["facts"]
    image = None if found["image"] is None else _build(ImagePreprocess, found["image"], options.preprocess)
    return Manifest(
        format=bundle.FORMAT,  # type: ignore[arg-type]  # mypy takes the constant for any int
        name=options.name,
        version=options.version,
        files={},
        signature=facts["signature"],
        inputs=inputs,
        outputs=outputs,
        quantize=options.quantize,
        preprocess=image,
        postprocess=postprocess,
        stateful=facts["stateful"],
        requirements=Requirements(ops=facts["ops"], loaded_on=loaded_on),
        quality=quality,
        calibration=_calibration(found["calibration"]),
        converter=Converter(versions=found["versions"], flags=flags(options, found)),
    )


def _calibration(plain: Mapping[str, Any] | None) -> Calibration:
    if plain is None:
        return Calibration()
    return Calibration(plain["source"], plain["samples"], tuple(InputRange(**found) for found in plain["ranges"]))


def flags(options: Options, found: Mapping[str, Any]) -> dict[str, str]:
    """Return the choices made, as text. Paths shrink to their last part: where a file lay is not what it was."""
    chosen = {
        "model": options.model.name,
        "quantize": options.quantize,
        "signature": found["signature"],
        "tags": ",".join(found["tags"]),
        "io": options.io,
        "batch": str(options.batch),
        "golden": str(options.golden),
        "eval": found["evaluation"],
        "calibration": options.calibration and Path(options.calibration).name,
        "shape": " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in sorted(options.shapes.items())),
        "min-agreement": "" if options.min_agreement is None else str(options.min_agreement),
        "max-error": "" if options.max_error is None else str(options.max_error),
    }
    return {name: value for name, value in chosen.items() if value}


def check_output(path: Path, *, force: bool) -> None:
    """Raise UsageError unless a bundle can be put at `path`; `force` allows one to be replaced, and only a bundle."""
    if not path.parent.is_dir():
        raise UsageError("-o", f"no directory {path.parent}", "make it first")
    if not os.access(path.parent, os.W_OK):
        raise UsageError("-o", f"{path.parent} cannot be written to")
    if not os.path.lexists(path):
        return
    if not force:
        raise UsageError("-o", f"{path} exists", "--force replaces it")
    try:
        bundle.read(path)
    except BadDataError as exc:
        raise UsageError("-o", f"{path} exists and is no bundle, so --force leaves it alone", exc.what) from exc


def write(options: Options, made: Manifest, files: Mapping[str, bytes]) -> None:
    """Put the bundle at its place: written beside it, then renamed, the old one (--force) put back if that fails."""
    path = options.output
    fresh = path.with_name(f".{path.stem}.{os.getpid()}.new{path.suffix}")
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    bundle.write(fresh, made, files)
    try:
        if not path.is_dir():
            fresh.replace(path)
            return
        path.rename(old)
        try:
            fresh.rename(path)
        except OSError:
            old.rename(path)
            raise
    finally:
        _remove(fresh)
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
