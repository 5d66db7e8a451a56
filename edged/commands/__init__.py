"""The commands of `edged`, one module each. A module of another package joins through the entry-point group
`edged.commands` with the same four names."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """What the module of a command holds.

    HELP: one line. EPILOG: examples that run as they stand. `configure` adds arguments; `run` returns the exit code and
    raises EdgedError for a mistake of the user's. LOG_LEVEL, if it is there: the least severe message that is logged
    where --log-level is not given, else `warning`.
    """

    HELP: str
    EPILOG: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
