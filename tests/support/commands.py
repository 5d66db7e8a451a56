"""The real command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def edged(*args: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m edged` and check what holds for every run: no traceback, and a mistake is lines of `edged: …`."""
    done = subprocess.run(
        [sys.executable, "-m", "edged", *map(str, args)],
        capture_output=True, text=True, timeout=60, cwd=cwd, env=os.environ | env, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done
