"""Names are looked up late, and a wrong one is answered with help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from delegates import registry


def test_a_typo_gets_the_nearest_name() -> None:
    """A person who types `edgetup` is not left with a list."""
    with pytest.raises(KeyError, match="did you mean 'edgetpu'"):
        registry.create("edgetup")


def test_every_row_names_something_that_can_be_called() -> None:
    """No row points nowhere."""
    for name in registry.BUILT_IN:
        options = {"library": "libany.so"} if name in registry.WITH_OPTIONS_ONLY else None
        assert registry.create(name, options).runtimes


def test_a_built_in_delegate_needs_no_metadata_of_packages() -> None:
    """A daemon that serves on the CPU must start fast: only the module of its delegate is imported."""
    code = (
        "import sys; from delegates import registry; registry.create('cpu'); "
        "print(*(m for m in sys.modules if m.startswith(('delegates.', 'importlib.metadata', 'difflib', 'ctypes'))))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, timeout=30,
                          cwd=Path(__file__).parents[3])  # fmt: skip
    assert set(done.stdout.split()) == {"delegates.registry", "delegates.base", "delegates.cpu"}


def test_another_package_adds_a_delegate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry point is found, listed after the built-in ones, and called with the options."""
    (tmp_path / "acme.py").write_text("def make(options): return ('acme', options)\n")
    _installed(tmp_path, "acme = acme:make\ncpu = acme:make\ngone = nowhere:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert registry.names() == (*registry.BUILT_IN, "acme", "gone")
    assert registry.create("acme", {"a": 1}) == ("acme", {"a": 1})
    assert registry.create("cpu").name == "cpu"  # nobody takes a built-in name over


def test_a_package_that_cannot_be_imported_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs its own delegate and no traceback."""
    _installed(tmp_path, "gone = nowhere:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="gone: nowhere:make cannot be loaded: No module named 'nowhere'"):
        registry.create("gone")


def _installed(folder: Path, entries: str) -> None:
    info = folder / "acme-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entries}")
