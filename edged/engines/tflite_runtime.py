"""The two TFLite runtimes behind one face: found without importing, imported on demand.

Importing a native library can kill the process, so what is installed is told by `find_spec` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from edged.errors import UnavailableError


@dataclass(frozen=True)
class Runtime:
    """A runtime by its package name, e.g. `ai-edge-litert`."""

    name: str
    package: str

    @property
    def installed(self) -> bool:
        """Whether the package is there, found without running any of it."""
        return find_spec(self.package) is not None

    def module(self) -> ModuleType:
        """Import and return the module that holds `Interpreter`. Raises UnavailableError when it cannot be imported."""
        try:
            return import_module(f"{self.package}.interpreter")
        except ImportError as exc:
            raise UnavailableError(self.name, f"cannot be imported: {exc}", f"pip install {self.name}") from exc

    @property
    def version(self) -> str:
        """The package's own version string, e.g. `2.3.0`."""
        return str(getattr(import_module(self.package), "__version__", "unknown"))


# In order of preference where nothing was measured: LiteRT takes int8 through XNNPACK on every CPU.
RUNTIMES = (Runtime("ai-edge-litert", "ai_edge_litert"), Runtime("tflite-runtime", "tflite_runtime"))


def installed() -> tuple[Runtime, ...]:
    """Return the runtimes that are here. Raises UnavailableError when none is."""
    found = tuple(runtime for runtime in RUNTIMES if runtime.installed)
    if not found:
        raise UnavailableError("runtime", "no TFLite runtime is installed", "pip install ai-edge-litert")
    return found


def by_name(name: str) -> Runtime:
    """Return one installed runtime by its package name; raises UnavailableError when it is not here."""
    for runtime in installed():
        if runtime.name == name:
            return runtime
    raise UnavailableError("runtime", f"{name} is not installed", f"pip install {name}, or use `runtime: auto`")
