"""Files of a run, or of a comparison: the JSON document and the page."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from edged import wholefile
from edged.bench import compare, document, page, page_compare
from edged.bench.document import Doc
from edged.errors import UnavailableError, UsageError

_COMPARISON = "compare.json"


def check(path: Path, *inputs: Path) -> None:
    """Raise UsageError where nothing can be written: better before a run of an hour. inputs: not to be overwritten."""
    name = _COMPARISON if inputs else document.NAME
    parent = path if path.suffix != ".json" else path.parent
    above = next(folder for folder in (parent, *parent.absolute().parents) if folder.exists() or folder.is_symlink())
    if not above.is_dir():
        hint = "name a folder, or a file that ends in .json" if above == path else ""
        raise UsageError("-o", f"{above} is a file, not a folder", hint)
    if not os.access(above, os.W_OK | os.X_OK):
        raise UsageError("-o", f"{above} cannot be written to")
    for file in _files(path, name):
        if file.is_dir():
            raise UsageError("-o", f"{file} is a folder", "name a file that is none yet, or a folder above")
        if any(_same(file, given) for given in inputs):
            raise UsageError("-o", f"{file} is one of the two runs", "name another file")


def _same(file: Path, given: Path) -> bool:
    found = given / document.NAME if given.is_dir() else given
    return file.exists() and file.resolve() in (found.resolve(), found.with_suffix(".html").resolve())


def _files(path: Path, name: str) -> tuple[Path, Path]:
    file = path if path.suffix == ".json" else path / name
    return file, file.with_suffix(".html")


def write(path: Path, found: Doc) -> Sequence[Path]:
    """Write FILE.json and FILE.html, or both into a folder; returns their names. Raises UnavailableError."""
    return _write(_files(path, document.NAME), found, page.page(found))


def write_comparison(path: Path, first: Doc, second: Doc) -> Sequence[Path]:
    """Write the comparison of two runs in the same way."""
    return _write(_files(path, _COMPARISON), compare.document(first, second), page_compare.page(first, second))


def _write(files: tuple[Path, Path], found: Doc, drawn: str) -> Sequence[Path]:
    for file, text in zip(files, (json.dumps(found, indent=1) + "\n", drawn), strict=True):
        try:
            wholefile.write(file, text)
        except OSError as error:
            raise UnavailableError(str(file), f"cannot be written: {error.strerror}") from error
    return files
