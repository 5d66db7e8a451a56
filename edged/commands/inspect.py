"""`edged inspect`: what is in a bundle, verified, or in a bare .tflite, read in a child process."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edged import bundle, childprocess
from edged.bundle import Bundle
from edged.commands import _filekind, _text
from edged.errors import BadDataError, EdgedError, ExitCode, UnavailableError
from edged.shown import plain

HELP = "show what is in a bundle or a .tflite model"
EPILOG = """examples:
  edged inspect bundles/har
  edged inspect har-3.tar --json
  edged inspect model.tflite"""

_DESCRIBE = "edged.engines.tflite_describe"
_TIMEOUT_S = 60.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "path", type=Path, metavar="BUNDLE|MODEL", help="a bundle (directory or .tar) or a .tflite file"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the facts. Raises BadDataError when the bundle or the model is bad, whatever it does to the runtime."""
    try:
        facts, rows = _model(args.path) if _filekind.is_model(args.path) else _bundle(bundle.read(args.path))
    except OSError as exc:
        raise BadDataError(str(args.path), exc.strerror or str(exc)) from exc
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if args.json else _text.table(rows, ""))
    return ExitCode.OK


def _bundle(loaded: Bundle) -> tuple[dict[str, Any], Iterator[list[str]]]:
    facts = {"path": str(loaded.path), "verified": True, **dataclasses.asdict(loaded.manifest)}
    operators, why_not = _counted(loaded)
    facts["operators"] = operators
    return facts, _bundle_rows(loaded, f"not counted: {why_not}" if operators is None else _counts(operators))


def _counted(loaded: Bundle) -> tuple[dict[str, int] | None, str]:
    """Return operator → count; None and the reason where no runtime here reads the model, which is no fault of it."""
    with tempfile.TemporaryDirectory(prefix="edged-inspect-") as folder:
        # The bytes that were verified: the bundle may be a .tar, or change on disk.
        model = Path(folder) / bundle.MODEL
        model.write_bytes(loaded.model)
        try:
            operators: dict[str, int] = _described(model)["operators"]
        except EdgedError as exc:
            return None, exc.what
    return operators, ""


def _counts(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in operators.items())


def _bundle_rows(loaded: Bundle, operators: str) -> Iterator[list[str]]:
    manifest = loaded.manifest
    yield ["bundle", f"{manifest.name} version {manifest.version} (format {manifest.format}), {loaded.path}"]
    yield ["quantize", manifest.quantize + (", stateful" if manifest.stateful else "")]
    yield ["signature", manifest.signature]
    yield from (_text.tensor_row("input", _text.tensor_facts(spec)) for spec in manifest.inputs)
    yield from (_text.tensor_row("output", _text.tensor_facts(spec)) for spec in manifest.outputs)
    yield from _processing_rows(loaded)
    for quality in manifest.quality:
        told = f"{quality.metric} {quality.value:g} (threshold {quality.threshold:g}, {quality.samples} samples)"
        yield ["quality", f"{quality.output}: {told}"]
    calibration = manifest.calibration
    if calibration.samples:
        yield ["calibration", f"{calibration.samples} samples from {calibration.source}"]
        yield from (["", f"{r.input}: {r.minimum:g} to {r.maximum:g}"] for r in calibration.ranges)
    yield ["operators", operators]
    yield from _origin_rows(loaded)
    yield from (
        ["file", f"{name}, {_text.size(entry.size)}, sha256 {entry.sha256[:12]} verified"]
        for name, entry in manifest.files.items()
    )


def _processing_rows(loaded: Bundle) -> Iterator[list[str]]:
    manifest = loaded.manifest
    image = manifest.preprocess
    if image is not None:
        size = f"{image.width}x{image.height} {image.channels} {image.layout}, {image.resize}"
        yield [
            "preprocess",
            f"{image.input}: image to {size}, scale {image.scale:g}, mean {image.mean}, std {image.std}",
        ]
    post = manifest.postprocess
    steps = ["softmax"] * post.softmax + [f"top {post.top_k} from {post.threshold:g}"] * bool(post.top_k)
    if steps:
        yield ["postprocess", ", ".join(steps)]
    if loaded.labels:
        yield ["labels", f"{len(loaded.labels)}: {', '.join(loaded.labels[:6])}{', …' * (len(loaded.labels) > 6)}"]  # noqa: PLR2004
    golden = loaded.golden()
    if golden is not None:
        yield ["golden", f"{golden.samples} samples"]


def _origin_rows(loaded: Bundle) -> Iterator[list[str]]:
    needs, made = loaded.manifest.requirements, loaded.manifest.converter
    if needs.ops:
        yield ["operators (version needed)", ", ".join(f"{name} v{version}" for name, version in needs.ops.items())]
    if needs.loaded_on:
        yield ["loaded on", ", ".join(needs.loaded_on)]
    if made.versions:
        yield ["converter", ", ".join(f"{name} {version}" for name, version in made.versions.items())]


def _model(path: Path) -> tuple[dict[str, Any], Iterator[list[str]]]:
    data = path.read_bytes()
    known = {"path": str(path), "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    facts = known | _described(path)
    return facts, _model_rows(facts)


def _described(path: Path) -> dict[str, Any]:
    """Return what the child says. Raises BadDataError, or UnavailableError without a runtime."""
    with childprocess.start_answering(_DESCRIBE, str(path.absolute())) as child:
        try:
            return childprocess.answer(child, _TIMEOUT_S)
        except childprocess.NoAnswerError as exc:
            raise _refusal(str(path), exc) from exc


def _refusal(path: str, exc: childprocess.NoAnswerError) -> EdgedError:
    """Return the runtime's own words where it refused the model, else how its process ended."""
    if exc.code == ExitCode.UNAVAILABLE:
        return UnavailableError(path, plain(exc.said))
    if exc.code == ExitCode.BAD_DATA:
        return BadDataError(path, plain(exc.said))
    return BadDataError(path, f"the process that reads it {exc}", "damaged, or made to do harm")


def _model_rows(facts: dict[str, Any]) -> Iterator[list[str]]:
    yield ["model", f"{facts['path']}, {_text.size(facts['size'])}, sha256 {facts['sha256'][:12]}"]
    yield ["read by", facts["runtime"]]
    for kind in ("inputs", "outputs"):
        yield from ([kind[:-1], _tensor(tensor)] for tensor in facts[kind])
    for name, ends in facts["signatures"].items():
        yield ["signature", f"{name}: {', '.join(ends['inputs'])} → {', '.join(ends['outputs'])}"]
    yield ["operators", _counts(facts["operators"])]


def _tensor(tensor: dict[str, Any]) -> str:
    told = f"{tensor['name']}: {tensor['dtype']} {_text.shape(tensor['shape'])}"
    if len(tensor["scales"]) == 1:
        return f"{told}, scale {tensor['scales'][0]:g}, zero point {tensor['zero_points'][0]}"
    return f"{told}, {len(tensor['scales'])} scales" if tensor["scales"] else told
