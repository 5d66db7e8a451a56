"""`edged inspect`: what is in a bundle, verified, or in a bare .tflite, read in a child process."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edged import bundle
from edged.bundle import Bundle
from edged.commands import _text
from edged.errors import BadDataError, ExitCode, UnavailableError

HELP = "show what is in a bundle or a .tflite model"
EPILOG = """examples:
  edged inspect bundles/har
  edged inspect har-3.tar --json
  edged inspect model.tflite"""

_DESCRIBE = (sys.executable, "-m", "edged.engines.tflite_describe")
_TIMEOUT_S = 60.0
_MAGIC = b"TFL3"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "path", type=Path, metavar="BUNDLE|MODEL", help="a bundle (directory or .tar) or a .tflite file"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the facts. Raises BadDataError when the bundle or the model is bad, whatever it does to the runtime."""
    try:
        is_model = args.path.is_file() and (args.path.suffix == ".tflite" or _magic(args.path) == _MAGIC)
        facts, rows = _model(args.path) if is_model else _bundle(bundle.read(args.path))
    except OSError as exc:
        raise BadDataError(str(args.path), exc.strerror or str(exc)) from exc
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if args.json else _text.table(rows, ""))
    return ExitCode.OK


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(8)[4:]


def _bundle(loaded: Bundle) -> tuple[dict[str, Any], Iterator[list[str]]]:
    facts = {"path": str(loaded.path), "verified": True, **dataclasses.asdict(loaded.manifest)}
    return facts, _bundle_rows(loaded)


def _bundle_rows(loaded: Bundle) -> Iterator[list[str]]:
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


def _listed(values: tuple[float, ...]) -> str:
    return "/".join(f"{value:g}" for value in values)


def _origin_rows(loaded: Bundle) -> Iterator[list[str]]:
    needs, made = loaded.manifest.requirements, loaded.manifest.converter
    if needs.ops:
        yield ["operators", ", ".join(f"{name} {version}" for name, version in needs.ops.items())]
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
    command = [*_DESCRIBE, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as exc:
        raise BadDataError(str(path), f"the runtime did not finish reading it in {_TIMEOUT_S:.0f} s") from exc
    if done.returncode < 0:
        name = signal.Signals(-done.returncode).name
        raise BadDataError(str(path), f"it kills the runtime that reads it ({name})", "damaged, or made to do harm")
    if done.returncode != 0:
        reason = (done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        kind = UnavailableError if done.returncode == ExitCode.UNAVAILABLE else BadDataError
        raise kind(str(path), reason)
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def _model_rows(facts: dict[str, Any]) -> Iterator[list[str]]:
    yield ["model", f"{facts['path']}, {_text.size(facts['size'])}, sha256 {facts['sha256'][:12]}"]
    yield ["read by", facts["runtime"]]
    for kind in ("inputs", "outputs"):
        yield from ([kind[:-1], _tensor(tensor)] for tensor in facts[kind])
    for name, ends in facts["signatures"].items():
        yield ["signature", f"{name}: {', '.join(ends['inputs'])} → {', '.join(ends['outputs'])}"]
    yield ["operators", ", ".join(f"{name} {count}" for name, count in facts["operators"].items())]


def _tensor(tensor: dict[str, Any]) -> str:
    text = f"{tensor['name']}: {tensor['dtype']} {_text.shape(tensor['shape'])}"
    if len(tensor["scales"]) == 1:
        return f"{text}, scale {tensor['scales'][0]:g}, zero point {tensor['zero_points'][0]}"
    return f"{text}, {len(tensor['scales'])} scales" if tensor["scales"] else text
