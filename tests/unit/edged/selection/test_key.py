"""A key changes with everything that changes figures, and with nothing else."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from support import tinymodel

from edged import bundle
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.engines.candidate import Candidate
from edged.engines.tflite_runtime import Runtime
from edged.selection import key as module
from edged.selection.key import digest, key, machine

POLICY = ThreadPolicy((0,), "nice")


@pytest.fixture
def dense(tmp_path: Path) -> Bundle:
    return bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_all_values_are_text_and_stay_the_same(dense: Bundle, runtime: Runtime) -> None:
    """The same again gives the same digest."""
    first = key(dense, Candidate(runtime.name), POLICY, "")
    assert all(isinstance(value, str) for value in first.values())
    assert first["model"] == dense.model_sha256
    assert digest(first) == digest(key(dense, Candidate(runtime.name), POLICY, ""))


def test_what_is_asked_for_is_in_it(dense: Bundle, runtime: Runtime) -> None:
    """Delegate, options, threads and the thread's policy."""
    one = Candidate(runtime.name)
    before = key(dense, one, POLICY, "")
    for other, name in (
        (dataclasses.replace(one, threads=2), "threads"),
        (dataclasses.replace(one, delegate="vx"), "delegate"),
        (dataclasses.replace(one, options='{"a": 1}'), "options"),
    ):
        assert changed(before, key(dense, other, POLICY, "")) == {name}
    assert changed(before, key(dense, one, ThreadPolicy((1,), "nice"), "")) == {"cpus"}
    assert changed(before, key(dense, one, ThreadPolicy((0,), "fifo"), "")) == {"realtime"}


def test_a_touched_library_changes_it(dense: Bundle, runtime: Runtime, tmp_path: Path) -> None:
    """Its time, its size, where a link leads, and that it is gone; its content is not read."""
    first, second, link = tmp_path / "a.so.1", tmp_path / "a.so.2", tmp_path / "a.so"
    first.write_bytes(b"one")
    second.write_bytes(b"two")
    os.utime(second, ns=(first.stat().st_atime_ns, first.stat().st_mtime_ns))
    link.symlink_to(first)
    seen = [key(dense, Candidate(runtime.name), POLICY, str(link))]

    def again() -> None:
        seen.append(key(dense, Candidate(runtime.name), POLICY, str(link)))
        assert changed(seen[-2], seen[-1]) == {"library"}

    os.utime(first, ns=(1, 1))
    again()
    first.write_bytes(b"longer")
    os.utime(first, ns=(1, 1))
    again()
    link.unlink()
    link.symlink_to(second)
    again()
    link.unlink()
    again()


def test_another_model_or_other_golden_samples_change_it(dense: Bundle, runtime: Runtime, tmp_path: Path) -> None:
    """Each is told apart by its own hash."""
    wrong = bundle.read(tinymodel.write_dense_bundle(tmp_path / "wrong", wrong_golden=True))
    other = bundle.read(tinymodel.write_int8_bundle(tmp_path / "int8"))
    before = key(dense, Candidate(runtime.name), POLICY, "")
    assert changed(before, key(wrong, Candidate(runtime.name), POLICY, "")) == {"golden"}
    assert changed(before, key(other, Candidate(runtime.name), POLICY, "")) == {"golden", "model"}


def test_another_runtime_version_changes_it(dense: Bundle, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade everything is measured again."""
    before = key(dense, Candidate(runtime.name), POLICY, "")
    monkeypatch.setattr(Runtime, "version", property(lambda _: "99.0"))
    assert changed(before, key(dense, Candidate(runtime.name), POLICY, "")) == {"runtime_version"}


def test_a_runtime_that_cannot_be_imported_is_no_error_here(
    dense: Bundle, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child that measures says so."""

    def broken(_: Runtime) -> str:
        raise ImportError("no libm")

    monkeypatch.setattr(Runtime, "version", property(broken))
    assert key(dense, Candidate(runtime.name), POLICY, "")["runtime_version"] == "cannot be imported: no libm"


X86 = (
    "processor\t: 0\nmodel name\t: Zen\ncpu MHz\t\t: {mhz}\nflags\t\t: fpu {flag}\n\nprocessor\t: 1\nflags\t\t: none\n"
)


def test_the_clock_of_a_cpu_is_not_in_it_and_its_flags_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that changes its clock is the same; another virtual machine with fewer flags is not."""

    def told(mhz: str, flag: str) -> str:
        monkeypatch.setattr(module, "_read", lambda *_: X86.format(mhz=mhz, flag=flag))
        return module._cpu()

    assert told("1000.1", "avx2") == told("3200.7", "avx2")
    assert told("1000.1", "avx2") != told("1000.1", "sse2")
    assert told("1000.1", "avx2").startswith("Zen ")


def test_the_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernel and machine are the system's; a machine without any board's name is no error."""
    assert machine()["kernel"] == os.uname().release
    monkeypatch.setattr(module, "_BOARD", ("/nonexistent",))
    assert module._board() == ""
