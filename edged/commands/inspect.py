"""`edged inspect`: what is in a bundle, verified, or in a bare .tflite; no runtime is needed to read it."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edged import bundle
from edged.bundle import Bundle
from edged.commands import _filekind, _model, _runtimes, _text
from edged.engines import tflite_file, tflite_manifest
from edged.engines.tflite_flatbuffer import TooLargeError
from edged.errors import BadDataError, ExitCode
from edged.shown import clipped, listed, size, table

HELP = "show what is in a bundle or a .tflite model"
EPILOG = """examples:
  edged inspect bundles/har
  edged inspect har-3.tar --json
  edged inspect model.tflite"""


_LABELS = 6  # of a row


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "path", type=Path, metavar="BUNDLE|MODEL", help="a bundle (directory or .tar) or a .tflite file"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the facts. Raises BadDataError when the bundle or the model is bad, whatever it does to the runtime.

    A bundle whose model is not what its manifest says is shown all the same, that first, and raises afterwards.
    """
    try:
        facts, rows = _bare(args.path) if _filekind.is_model(args.path) else _bundle(bundle.read(args.path))
    except OSError as exc:
        raise BadDataError(str(args.path), exc.strerror or str(exc)) from exc
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if args.json else table(rows, ""))
    if wrong := facts.get("contradictions"):
        sys.stdout.flush()
        raise BadDataError(str(args.path), "; ".join(wrong), "the manifest and the model do not go together")
    return ExitCode.OK


def _bundle(loaded: Bundle) -> tuple[dict[str, Any], Iterator[list[str]]]:
    loaded.golden()  # raises where a daemon would
    facts = {"path": str(loaded.path), "verified": True, **dataclasses.asdict(loaded.manifest)}
    facts |= {"contradictions": list(_contradictions(loaded)), "unlisted": list(loaded.unlisted)}
    model, why = _read(loaded.model)
    facts |= {"operators": model and model["operators"], "model": model, **({} if model else {"refused": why})}
    told = [["operators", f"not counted: {why}"]]
    if model is not None:
        told = [["operators", _model.counts(model["operators"])], *_model.more_rows(model)]
    if bundle.MODEL_CPU in loaded.files:
        facts["cpu_model"], why = _read(loaded.cpu_model)
        twin = facts["cpu_model"]
        told += _model.twin_rows(twin, model) if twin else [["CPU twin", f"{bundle.MODEL_CPU}: not counted: {why}"]]
    return facts, _bundle_rows(loaded, facts, told)


def _read(model: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the facts of a bundle's model, or None and why it has none: the rest of the bundle is shown then."""
    with tempfile.TemporaryDirectory(prefix="edged-inspect-") as folder:
        # The bytes that were verified: the bundle may be a .tar, or change on disk.
        path = Path(folder) / bundle.MODEL
        path.write_bytes(model)
        try:
            return _model.facts(model, path), ""
        except ValueError as exc:  # the bundle is as its maker wrote it
            return None, f"the model {exc}{_opinions(path)}"


def _contradictions(loaded: Bundle) -> tuple[str, ...]:
    try:
        return tflite_manifest.of_bundle(loaded)
    except TooLargeError:
        return ()


def _bundle_rows(loaded: Bundle, facts: dict[str, Any], model: list[list[str]]) -> Iterator[list[str]]:
    manifest = loaded.manifest
    yield from (["contradiction", wrong] for wrong in facts["contradictions"])
    yield ["bundle", f"{clipped(manifest.name)} version {manifest.version} (format {manifest.format}), {loaded.path}"]
    yield ["quantize", manifest.quantize + (", stateful" if manifest.stateful else "")]
    yield ["signature", clipped(manifest.signature)]
    yield from (_text.tensor_row("input", _text.tensor_facts(spec)) for spec in manifest.inputs)
    yield from (_text.tensor_row("output", _text.tensor_facts(spec)) for spec in manifest.outputs)
    yield from _processing_rows(loaded)
    for quality in manifest.quality:
        told = f"{quality.metric} {quality.value:g} (threshold {quality.threshold:g}, {quality.samples} samples)"
        yield ["quality", f"{clipped(quality.output)}: {told}"]
    calibration = manifest.calibration
    if calibration.samples:
        yield ["calibration", f"{calibration.samples} samples from {clipped(calibration.source)}"]
        yield from (["", f"{clipped(r.input)}: {r.minimum:g} to {r.maximum:g}"] for r in calibration.ranges)
    yield from model
    yield from _origin_rows(loaded)
    yield from (
        ["file", f"{name}, {size(entry.size)}, sha256 {entry.sha256[:12]} verified"]
        for name, entry in manifest.files.items()
    )
    if loaded.unlisted:
        yield [
            "not in the manifest",
            f"{listed(map(clipped, loaded.unlisted))} (nothing vouches for it, and it is not used)",
        ]


def _processing_rows(loaded: Bundle) -> Iterator[list[str]]:
    manifest = loaded.manifest
    image = manifest.preprocess
    if image is not None:
        to = f"{image.width}x{image.height} {image.channels} {image.layout}, {image.resize}"
        yield [
            "preprocess",
            f"{image.input}: image to {to}, scale {image.scale:g}, mean {image.mean}, std {image.std}",
        ]
    post = manifest.postprocess
    steps = ["softmax"] * post.softmax + [f"top {post.top_k} from {post.threshold:g}"] * bool(post.top_k)
    if steps:
        yield ["postprocess", ", ".join(steps)]
    if loaded.labels:
        yield ["labels", f"{len(loaded.labels)}: {listed(map(clipped, loaded.labels), _LABELS)}"]
    golden = loaded.golden()
    if golden is not None:
        yield ["golden", f"{golden.samples} samples"]


def _origin_rows(loaded: Bundle) -> Iterator[list[str]]:
    needs, made = loaded.manifest.requirements, loaded.manifest.converter
    if needs.ops:
        told = listed(f"{clipped(name)} v{version}" for name, version in needs.ops.items())
        yield ["operators (version needed)", told]
    if needs.loaded_on:
        yield ["loaded on, by the manifest", listed(map(clipped, needs.loaded_on))]
    if made.versions:
        yield ["converter", ", ".join(f"{name} {version}" for name, version in made.versions.items())]


def _bare(path: Path) -> tuple[dict[str, Any], Iterator[list[str]]]:
    try:
        data = tflite_file.content(path)
    except ValueError as exc:
        raise BadDataError(str(path), str(exc)) from exc
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        facts = {"path": str(path), "size": len(data), "sha256": sha256, **_model.facts(data, path)}
    except ValueError as exc:
        raise BadDataError(str(path), f"{exc}{_opinions(path)}") from exc
    first = ["model", f"{path}, {size(len(data))}, sha256 {sha256[:12]}"]
    return facts, itertools.chain([first], _model.rows(facts))


def _opinions(path: Path) -> str:
    """What each runtime here says about a file that we cannot read."""
    return "".join(
        f"; {one.name} " + ("loads it" if one.loads else f"says: {one.reason}") for one in _runtimes.tried(path)
    )
