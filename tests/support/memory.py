"""Resident memory of a process tree, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def rss_kib(pid: int) -> int:
    """KiB of the process and all below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    status = Path(f"/proc/{pid}/status").read_text()
    own = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return own + sum(rss_kib(int(child)) for child in children)
