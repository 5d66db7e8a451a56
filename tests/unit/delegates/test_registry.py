"""Names are looked up late, and a wrong one is answered with help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from delegates import registry
from delegates.base import Probe


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
                          cwd=Path(registry.__file__).parents[1])  # fmt: skip
    assert set(done.stdout.split()) == {"delegates.registry", "delegates.base", "delegates.cpu"}


GOOD = """
from delegates.base import Probe
class Acme:
    name, isolated, api, caches, note = "cpu", False, "interpreter", True, "ours"
    runtimes = {"tflite-runtime"}
    def __init__(self, options): self.options = options
    def probe(self): return Probe(available=True, library="/lib.so", needs=["/a.so"])
    def open(self, module, how): return {"options": self.options}
"""
MAKE = "def make(options): "


def brought(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Install a package whose module has this text."""
    module = f"acme{folder.name}"  # imported once in a process
    (folder / f"{module}.py").write_text(source)
    _installed(folder, f"acme = {module}:make\ncpu = {module}:make\n")
    monkeypatch.syspath_prepend(folder)


def test_another_package_adds_a_delegate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry point is found, listed after the built-in ones, and called with the options. Its name is the one that a
    configuration has, and its code lives in a process of its own, whatever it says."""
    brought(tmp_path, monkeypatch, GOOD + "make = Acme")
    assert registry.names() == (*registry.BUILT_IN, "acme")
    assert (registry.foreign("acme"), registry.foreign("cpu"), registry.foreign("no")) == (True, False, False)
    made = registry.create("acme", {"a": 1})
    assert (made.name, made.isolated, made.api, made.caches, made.note) == ("acme", True, "interpreter", True, "ours")
    assert made.runtimes == {"tflite-runtime"}
    assert made.open(sys) == {"options": {"a": 1}}
    assert made.probe() == Probe(available=True, library="/lib.so", needs=("/a.so",))
    assert not registry.create("cpu").isolated  # nobody takes a built-in name over


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothere", "cannot be loaded: No module named 'nothere'"),
        ("raise RuntimeError('boom')", "cannot be loaded: RuntimeError: boom"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("class End(BaseException): pass\nraise End", "cannot be loaded: End"),
        ("def (", "cannot be loaded: SyntaxError: invalid syntax"),
        ("pass", "cannot be loaded: AttributeError"),
        ("make = 3", "makes no delegate: TypeError"),
        (MAKE + "raise TypeError('x')", "makes no delegate: TypeError: x"),
        (MAKE + "raise SystemExit", "makes no delegate: SystemExit"),
        (MAKE + "raise ValueError('no licence')", "makes no delegate: no licence"),
        (MAKE + "return None", "makes no delegate: AttributeError"),
        (GOOD + "Acme.runtimes = None\nmake = Acme", "makes no delegate: TypeError"),
        (GOOD + "Acme.runtimes = {'torch'}\nmake = Acme", "makes no delegate: TypeError: runtimes must be of"),
        (GOOD + "Acme.api = 'rpc'\nmake = Acme", "makes no delegate: TypeError: api is 'rpc'"),
        (GOOD + "Acme.open = None\nmake = Acme", "makes no delegate: TypeError: probe and open must be functions"),
        (GOOD + "def probe(self): raise RuntimeError('p')\nAcme.probe = probe\nmake = Acme", "RuntimeError: p"),
        (GOOD + "def probe(self): raise SystemExit(0)\nAcme.probe = probe\nmake = Acme", "SystemExit: 0"),
        (GOOD + "def probe(self): return True\nAcme.probe = probe\nmake = Acme", "its probe failed: TypeError"),
    ],
)
def test_a_package_that_is_broken_costs_its_own_delegate(
    source: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it raises and whenever: it is not available, and says why."""
    brought(tmp_path, monkeypatch, source)
    made = registry.create("acme")
    found = made.probe()
    assert not found.available
    assert reason in found.reason
    assert found.fix
    assert made.isolated
    assert made.runtimes


def test_options_that_another_package_does_not_take_are_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whoever wrote the configuration, as with the built-in ones."""
    brought(tmp_path, monkeypatch, MAKE + "raise ValueError('acme: unknown option a')")
    with pytest.raises(ValueError, match="unknown option a"):
        registry.create("acme", {"a": 1})


def test_a_broken_one_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody tries all the same, the reason is told again."""
    brought(tmp_path, monkeypatch, "import nothere")
    with pytest.raises(ValueError, match="nothere"):
        registry.create("acme").open(sys)


@pytest.mark.parametrize("entries", [b"nonsense\n", b"\xff\xfe["])
def test_entry_points_that_cannot_be_read_cost_no_other_package(
    entries: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python's own reader raises for all of them; what was left out is told, once."""
    (tmp_path / "good").mkdir()
    brought(tmp_path / "good", monkeypatch, GOOD + "make = Acme")
    broken = tmp_path / "bad" / "nonsense-1.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: nonsense\nVersion: 1\n")
    (broken / "entry_points.txt").write_bytes(b"[edged.delegates]\n" + entries)
    monkeypatch.syspath_prepend(tmp_path / "bad")
    for _ in range(2):
        assert registry.names()[-1] == "acme"
    assert caplog.text.count(f"a package in {tmp_path / 'bad'} cannot be read") == 1


def _installed(folder: Path, entries: str) -> None:
    info = folder / "acme-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entries}")
