"""What a delegate is: a candidate that says whether it can serve here, and what a runtime needs to use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol

LITERT, TFLITE_RUNTIME = "ai-edge-litert", "tflite-runtime"
BOTH = frozenset({LITERT, TFLITE_RUNTIME})


@dataclass(frozen=True)
class Probe:
    """What `probe` found. reason: why it is not available, in one line that a person can act on.

    fix: the command or the step that would mend it. library: the file's path; version: of the library; device: where it
    is, e.g. `/dev/apex_0`. Empty for what is not known. needs: paths of the libraries that came with that one.
    """

    available: bool
    reason: str = ""
    fix: str = ""
    library: str = ""
    version: str = ""
    device: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opening:
    """How to open. cache: a directory for the compiled form, None for none; only a delegate with `caches` writes there.

    alone: without the CPU beside it, which would hide what it does not take (CompiledModel alone can tell the two).
    threads: of the part that stays on the CPU.
    """

    cache: Path | None = None
    alone: bool = True
    threads: int = 1


DEFAULT = Opening()


class Delegate(Protocol):
    """One candidate. Constructed with the options of the configuration; raises ValueError on one it does not know."""

    @property
    def name(self) -> str:
        """As replies tell it, e.g. `edgetpu` or `external:libvx_delegate.so`."""

    @property
    def isolated(self) -> bool:
        """Whether it runs code of a vendor, and so lives in a process of its own."""

    @property
    def api(self) -> Literal["interpreter", "compiled_model"]:
        """Which class of the runtime brings it in."""

    @property
    def runtimes(self) -> frozenset[str]:
        """The packages that can bring it in."""

    @property
    def caches(self) -> bool:
        """Whether it can keep the compiled form of a model in a directory."""

    @property
    def note(self) -> str:
        """What a person should know before trusting it, e.g. that it was never measured; empty for nothing."""

    def probe(self) -> Probe:
        """Say whether it can serve on this machine: cheap; call it in a child process, for it may load the library."""

    def open(self, module: ModuleType, how: Opening = DEFAULT) -> Mapping[str, Any]:
        """Return the keyword arguments that bring the delegate in.

        module: `<package>.interpreter`, and they are those of `Interpreter`; or with `api` compiled_model
        `ai_edge_litert.compiled_model`, and they are those of `CompiledModel.from_buffer`.
        Raises ValueError or OSError, with a text, when the library or the device refuses.
        """
