"""`edged sample`: the commented configurations that travel with the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edged.checks import hint
from edged.errors import ExitCode, UnavailableError, UsageError
from edged.shown import table

HELP = "print a commented sample configuration"
EPILOG = """examples:
  edged sample
  edged sample minimal > edged.yaml
  edged sample reference"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the sample to print; without it, the list of them")


def run(args: argparse.Namespace) -> int:
    """Print one sample, or the list."""
    samples = find()
    if args.name is None:
        sys.stdout.write(table(([name, _first_words(path)] for name, path in sorted(samples.items())), ""))
        return ExitCode.OK
    path = samples.get(args.name.removesuffix(".yaml"))
    if path is None:
        close = hint(args.name, samples)
        raise UsageError(args.name, f"no such sample{close}", "" if close else "`edged sample` lists them")
    sys.stdout.write(path.read_text(encoding="utf-8"))
    return ExitCode.OK


def find() -> dict[str, Path]:
    """Return name → file; a name is the path below `configs/`, without `.yaml`. Raises UnavailableError without any."""
    root = Path(__file__).resolve().parent.parent / "configs"
    if not root.is_dir():
        raise UnavailableError("samples", f"no directory {root}", "install edged from its wheel")
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.startswith((".", "README")))
    return {path.relative_to(root).as_posix().removesuffix(".yaml"): path for path in files}


def _first_words(path: Path) -> str:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ").partition(". ")[0].rstrip() if first.startswith("#") else ""
