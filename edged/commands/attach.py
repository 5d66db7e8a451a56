"""`edged attach`: a bundle whose model is compiled for one accelerator, with the model it was made from as CPU twin."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from edged import arguments, bundle, magics
from edged.bundle import MODEL, MODEL_CPU, Bundle
from edged.engines import tflite_file, tflite_manifest, tflite_nodes
from edged.engines.tflite_file import ModelFile
from edged.errors import BadDataError, ExitCode, UsageError
from edged.limits import MAX_FILE
from edged.manifest import Manifest
from edged.shown import clipped, listed, size, table

HELP = "put a model compiled for an accelerator into a bundle, beside its CPU twin"
EPILOG = """examples:
  edged attach bundles/har har_edgetpu.tflite -o bundles/har-tpu --version 2
  edged attach har-3.tar har_vela.tflite -o har-3-ethos.tar
The compiled file must come from the bundle's own model.tflite, by its vendor's compiler. On a device it is measured
like every candidate, by the bundle's golden samples; where the accelerator fails, the twin answers on the CPU."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="the bundle that holds the model it was made from")
    parser.add_argument("compiled", type=Path, metavar="COMPILED", help="the .tflite that the vendor's compiler wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="NEW", help="the new bundle (or .tar)")
    parser.add_argument(
        "--version", type=arguments.whole, metavar="N", help="its version; one more than the bundle's where not given"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Write the new bundle. Raises BadDataError when the two models do not belong together."""
    _require_beside(args.output, args.bundle)
    loaded = bundle.read(args.bundle)
    compiled = _bytes(args.compiled)
    file = _model(compiled, args.compiled)
    twin = loaded.cpu_model
    if compiled == twin:
        raise BadDataError(str(args.compiled), "is the bundle's own model, byte for byte", "compile it first")
    manifest = _manifest(loaded, file, args.version)
    wrong = tflite_manifest.compiled_contradictions(manifest, compiled, twin)
    if wrong:
        raise BadDataError(str(args.compiled), "; ".join(wrong), f"compiled from another model than {args.bundle}'s?")
    try:
        bundle.write(args.output, manifest, {**loaded.files, MODEL: compiled, MODEL_CPU: twin})
    except FileExistsError as exc:
        raise UsageError(str(args.output), "is there already", "name another -o") from exc
    except OSError as exc:
        raise UsageError(str(args.output), f"cannot be written: {exc.strerror or exc}") from exc
    _tell(args, _facts(manifest, file, compiled, twin))
    return ExitCode.OK


def _require_beside(output: Path, given: Path) -> None:
    """Raise UsageError where the new bundle would be written into the one that it is made from."""
    if given.resolve() in output.resolve().parents:
        raise UsageError(str(output), f"lies in {given}, which would be no bundle any more", "name another -o")


def _bytes(path: Path) -> bytes:
    try:
        if kind := magics.special(path):
            raise BadDataError(str(path), f"{kind}, not a .tflite model")
        if path.is_file() and path.stat().st_size > MAX_FILE:
            raise BadDataError(str(path), f"{path.stat().st_size} bytes are no .tflite model")
        return path.read_bytes()
    except OSError as exc:
        raise BadDataError(str(path), exc.strerror or str(exc)) from exc


def _model(data: bytes, path: Path) -> ModelFile:
    try:
        return tflite_file.read(data)
    except ValueError as exc:
        raise BadDataError(str(path), str(exc)) from exc


def _manifest(loaded: Bundle, file: ModelFile, version: int | None) -> Manifest:
    known = loaded.manifest
    requirements = dataclasses.replace(known.requirements, ops=dict(file.versions))
    return dataclasses.replace(known, requirements=requirements, version=version or known.version + 1)


def _facts(manifest: Manifest, file: ModelFile, compiled: bytes, twin: bytes) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "version": manifest.version,
        "custom_ops": list(tflite_nodes.custom_ops(file, flex=False)),
        "operators": tflite_nodes.counts(file),
        "bytes": {MODEL: len(compiled), MODEL_CPU: len(twin)},
    }


def _tell(args: argparse.Namespace, facts: dict[str, Any]) -> None:
    if args.json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
        return
    custom = facts["custom_ops"]
    rows = [
        ["bundle", f"{args.output}: {clipped(facts['name'])} version {facts['version']}"],
        ["compiled ops", listed(map(clipped, custom)) or "none: is this the compiled file?"],
        ["left to the CPU", f"{sum(n for name, n in facts['operators'].items() if name not in custom)} ops"],
        *([name, size(count)] for name, count in facts["bytes"].items()),
    ]
    sys.stdout.write(table(rows, ""))
