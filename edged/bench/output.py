"""Files of a run: the JSON document and the page."""

from __future__ import annotations

import json
from pathlib import Path

from edged import wholefile
from edged.bench import page, page_compare
from edged.bench.document import Doc
from edged.errors import UsageError

_NAME = "bench"


def check(path: Path) -> None:
    """Raise UsageError for a name that can be neither a folder nor a .json: better before a run of an hour."""
    if path.is_file() and path.suffix != ".json":
        raise UsageError("-o", f"{path} is a file", "name a folder, or a file that ends in .json")


def _files(path: Path, name: str) -> tuple[Path, Path]:
    if path.suffix == ".json":
        return path, path.with_suffix(".html")
    return path / f"{name}.json", path / f"{name}.html"


def write(path: Path, found: Doc) -> list[Path]:
    """Write FILE.json and FILE.html, or both into a folder; returns their names. Raises OSError."""
    document, drawn = _files(path, _NAME)
    wholefile.write(document, json.dumps(found, indent=1) + "\n")
    wholefile.write(drawn, page.page(found))
    return [document, drawn]


def write_comparison(path: Path, first: Doc, second: Doc) -> Path:
    """Write the page of two runs; returns its name. Raises OSError."""
    drawn = _files(path, "compare")[1]
    wholefile.write(drawn, page_compare.page(first, second))
    return drawn
