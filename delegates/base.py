"""What a delegate is: a candidate that says whether it can serve here, and what the interpreter needs to use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar, Protocol


@dataclass(frozen=True)
class Probe:
    """What `probe` found. `reason` says, in one line a person can act on, why it is not available."""

    available: bool
    reason: str = ""
    library: str = ""
    version: str = ""
    device: str = ""


class Delegate(Protocol):
    """One candidate. Constructed with the options of the configuration; raises ValueError on one it does not know."""

    name: ClassVar[str]

    def probe(self) -> Probe:
        """Say whether it can serve on this machine: cheap, and safe to run in a child process only."""

    def open(self, interpreter_module: ModuleType) -> Mapping[str, Any]:
        """Return the keyword arguments for `interpreter_module.Interpreter` that bring the delegate in.

        Raises ValueError or OSError when the library or the device refuses.
        """
