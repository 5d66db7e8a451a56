"""The ai-edge-litert package as it lies on the disk: what its wheel brought for accelerators. Nothing of it is run."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "ai_edge_litert"
INSTALL = "pip install --upgrade 'ai-edge-litert>=2.2'"  # 2.1 has neither the libraries nor their options


def folder() -> Path | None:
    """Return the package's directory; None where it is not installed."""
    spec = find_spec(PACKAGE)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def installed(distribution: str = "ai-edge-litert") -> str:
    """Return the version of an installed distribution; "" where it is not."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
