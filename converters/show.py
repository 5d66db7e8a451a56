"""What a conversion tells: stages on the way, tables or JSON at the end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TextIO

from converters.parity import OutputParity
from converters.pipeline import Result
from edged.bundle import TensorSpec
from edged.commands import _text

_FIGURES = ("agreement", "equal", "cosine", "snr_db", "max_abs", "relative", "accuracy_float", "accuracy")


class Progress:
    """One line that is overwritten, on a terminal; a line per stage where `plain`; else nothing."""

    def __init__(self, stream: TextIO, *, plain: bool) -> None:
        self._stream, self._plain = stream, plain
        self._live = stream.isatty() and not plain

    def stage(self, text: str) -> None:
        """Tell that a stage begins."""
        if self._plain:
            print(f"{text} …", file=self._stream, flush=True)
        elif self._live:
            self._stream.write(f"\r\033[K{text} …")
            self._stream.flush()

    def done(self) -> None:
        """Clear the line."""
        if self._live:
            self._stream.write("\r\033[K")
            self._stream.flush()


def as_json(result: Result) -> str:
    """Return every fact as one JSON document."""
    m = result.manifest
    document = {
        "bundle": str(result.path),
        "name": m.name,
        "version": m.version,
        "quantize": m.quantize,
        "signature": m.signature,
        "bytes": dict(result.sizes),
        "inputs": [asdict(spec) for spec in m.inputs],
        "outputs": [asdict(spec) for spec in m.outputs],
        "postprocess": asdict(m.postprocess),
        "dtypes": {name: {"tensors": count, "constant_bytes": size} for name, (count, size) in result.dtypes.items()},
        "quality": [asdict(quality) for quality in m.quality],
        "evaluation": {"source": result.evaluation, "samples": result.samples},
        "requirements": asdict(m.requirements),
        "warnings": list(result.warnings),
    }
    return json.dumps(document, indent=2)


def as_text(result: Result) -> str:
    """Return the tables for a person."""
    return "\n".join(_lines(result))


def _lines(result: Result) -> Iterator[str]:
    m = result.manifest
    before, after = result.sizes["savedmodel"], result.sizes["model"]
    yield f"{result.path}: {m.name} version {m.version}, {m.quantize}"
    yield f"size: SavedModel {before:,} bytes, model {after:,} bytes ({before / after:.1f} times smaller)"
    yield ""
    tensors = [*_tensor_rows(m.inputs, "input"), *_tensor_rows(m.outputs, "output")]
    yield _table([("", "name", "dtype", "shape", "client"), *tensors])
    yield ""
    if m.postprocess.top_k:
        yield f"classes: JSON and CBOR answers list the best {m.postprocess.top_k}{_of(m.postprocess.output)}"
        yield ""
    constants = [(name, str(count), f"{size:,}") for name, (count, size) in result.dtypes.items()]
    yield _table([("dtype", "tensors", "constant bytes"), *constants])
    yield ""
    yield f"compared with the SavedModel on {result.samples} samples ({result.evaluation}):"
    yield _table(_parity_rows(result.parities))
    yield ""
    yield f"runs on: {', '.join(m.requirements.loaded_on)}"


def _of(output: str) -> str:
    return f" of {output!r}" if output else ""


def _table(rows: Sequence[Sequence[str]]) -> str:
    return _text.table(rows, "").removesuffix("\n")


def _tensor_rows(specs: Sequence[TensorSpec], kind: str) -> Iterator[tuple[str, ...]]:
    for spec in specs:
        yield kind, spec.name, spec.dtype, _text.shape(spec.shape), spec.wire_dtype.name


def _parity_rows(parities: Sequence[OutputParity]) -> list[tuple[str, ...]]:
    names = [name for name in _FIGURES if any(name in p.figures for p in parities)]
    rows = [("output", *names)]
    for p in parities:
        rows.append((p.output, *(f"{p.figures[name]:.5g}" if name in p.figures else "-" for name in names)))  # noqa: PERF401
    return rows
