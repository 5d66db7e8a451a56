"""What the benchmarks have in common: options, the host's facts, how figures are told, and what is lacking."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from edged.bench.host import facts
from edged.errors import EdgedError, ExitCode

__all__ = ["facts", "lacking", "line", "needs", "options", "run", "tell", "verdict"]

_SHOWN = ("cpu", "cores", "load", "kernel", "python", "numpy", "paho-mqtt", "ai-edge-litert", "tflite-runtime")
# Program → where Debian has it.
_missed: list[float] = []  # figures that did not keep their limit
_PROGRAMS = {"gcc": "gcc libc6-dev libmosquitto-dev", "chrt": "util-linux", "mosquitto": "mosquitto"}


def options(about: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with `--json` and an option of each name, of its default's type."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help="(%(default)s)")
    return parser


def line(found: dict[str, Any]) -> str:
    """One line of facts for the head of a table."""
    return ", ".join(f"{key} {found[key]}" for key in _SHOWN if key in found)


def tell(args: argparse.Namespace, host: dict[str, Any], found: dict[str, Any], show: Callable[[], None]) -> None:
    """Print everything as one JSON object where that is asked for, else the host and what `show` prints."""
    if args.json:
        print(json.dumps({"host": host, **found}))
        return
    print(line(host))
    show()


def verdict(value: float, limit: float, *, least: bool = False) -> str:
    """Return whether a figure keeps its limit: at most, or at least, so much."""
    kept = value >= limit if least else value <= limit
    if not kept:
        _missed.append(value)
    return f"{'met' if kept else 'NOT MET'} (at {'least' if least else 'most'} {limit})"


def lacking(what: str) -> NoReturn:
    """End with one line: the benchmark cannot be run here."""
    sys.stderr.write(f"bench: {what}\n")
    sys.exit(ExitCode.UNAVAILABLE)


def needs(*programs: str, root: bool = False) -> None:
    """End with one line where a program, or the right to raise priorities, is not there."""
    missing = [name for name in programs if shutil.which(name) is None]
    # Debian keeps it where a user's PATH does not look.
    if "mosquitto" in missing and shutil.which("mosquitto", path="/usr/sbin"):
        missing.remove("mosquitto")
    if missing:
        lacking(f"needs {', '.join(missing)} (apt-get install {' '.join(_PROGRAMS[name] for name in missing)})")
    if root and os.geteuid():
        lacking("needs root, to raise priorities")


def run(main: Callable[[], int]) -> NoReturn:
    """Run a benchmark as a program: 1 where a limit of the printed table was not kept, or it failed, with one line."""
    try:
        sys.exit(main() or bool(_missed))
    except EdgedError as error:
        sys.exit(f"bench: {error}")
