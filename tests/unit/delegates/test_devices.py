"""Device nodes and the step that opens a shut one."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from delegates import devices
from delegates.base import Probe


def node(root: Path, name: str, mode: int = 0o660) -> Path:
    path = root / "dev" / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    path.chmod(mode)
    return path


def test_nodes_are_found_by_pattern_and_sorted(tmp_path: Path) -> None:
    """The first one is the one that is told."""
    for name in ("ethosu1", "ethosu0", "null"):
        node(tmp_path, name)
    found = devices.nodes(["dev/ethosu*", "dev/none*"], tmp_path)
    assert [devices.shown(path, tmp_path) for path in found] == ["/dev/ethosu0", "/dev/ethosu1"]


def test_the_group_of_the_node_is_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joining it helps where the group may read and write, and only there."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    group = next(entry for entry in grp.getgrall() if entry.gr_gid)
    shut = node(tmp_path, "galcore")
    real = Path.stat
    monkeypatch.setattr(Path, "stat", lambda path, **more: _owned(real(path, **more), group.gr_gid))
    found = devices.opened(Probe(available=True), [shut], tmp_path)
    assert found.reason == "/dev/galcore is there, but this user may not open it"
    assert f"usermod -aG {group.gr_name} $USER" in found.fix
    shut.chmod(0o600)
    assert "udev rule" in devices.opened(Probe(available=True), [shut], tmp_path).fix


def _owned(status: os.stat_result, group: int) -> os.stat_result:
    return os.stat_result((*status[:5], group, *status[6:]))
