"""The lines that `edged demo --keep` shows: what can be typed here, and what becomes of the files."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from converters.demo import keep
from converters.demo.scene import Scene

X = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, *installed: str, removed: bool = True) -> list[str]:
    folder.mkdir()
    np.savez(folder / "eval.npz", window=X)
    prepared = SimpleNamespace(eval_data=folder / "eval.npz", input_name="window", bundle=folder / "bundle")
    scene: Any = SimpleNamespace(prepared=prepared, broker=SimpleNamespace(url_v5="mqtt://127.0.0.1:1234"))
    monkeypatch.setattr(shutil, "which", lambda name: name if name in installed else None)
    return list(keep.commands(cast("Scene", scene), folder, removed=removed))


def programs(lines: list[str]) -> list[str]:
    return [" ".join(shlex.split(line)[: 1 + line.startswith("  edged")]) for line in lines[1:]]


def test_only_what_is_installed_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without mosquitto's tools our own commands stand alone."""
    ours = ["edged infer", "edged inspect", "edged top"]
    assert programs(shown(tmp_path / "a", monkeypatch)) == ours
    both = shown(tmp_path / "b", monkeypatch, "mosquitto_sub", "mosquitto_rr")
    assert programs(both) == [*ours, "mosquitto_sub", "mosquitto_rr"]


def test_the_request_by_hand_is_a_window_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that mosquitto_rr sends holds the first recording, and a path with a space survives the shell."""
    (*_, line) = shown(tmp_path / "a b", monkeypatch, "mosquitto_rr")
    assert "-p 1234 -t edged/v1/dev/demo/req/har/c/me -e edged/v1/resp/me/1 -D publish content-type" in line
    assert f'"$(cat {shlex.quote(str(tmp_path / "a b/window.json"))})"' in line
    sent = json.loads((tmp_path / "a b" / "window.json").read_text())
    np.testing.assert_array_equal(np.array(sent["instances"], np.float32), X[:1])
    np.testing.assert_array_equal(np.load(tmp_path / "a b" / "window.npy"), X[:1])


def test_what_becomes_of_the_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary directory is called one, with the way to keep it; --out needs no such word."""
    assert "removed when the demo ends (--out DIR keeps it)" in shown(tmp_path / "a", monkeypatch)[0]
    assert "removed" not in shown(tmp_path / "b", monkeypatch, removed=False)[0]
