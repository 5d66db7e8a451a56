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
from edged.selection.key import IDENTITY, NOTHING, Installed, digest, identity, key, machine

POLICY = ThreadPolicy((0,), "nice")


@pytest.fixture
def dense(tmp_path: Path) -> Bundle:
    return bundle.read(tinymodel.write_dense_bundle(tmp_path / "dense"))


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {name for name in before if before[name] != after[name]}


def test_all_values_are_text_and_stay_the_same(dense: Bundle, runtime: Runtime) -> None:
    """The same again gives the same digest."""
    first = key(dense, Candidate(runtime.name), POLICY, NOTHING)
    assert all(isinstance(value, str) for value in first.values())
    assert first["model"] == dense.model_sha256
    assert digest(first) == digest(key(dense, Candidate(runtime.name), POLICY, NOTHING))


def test_what_is_asked_for_is_in_it(dense: Bundle, runtime: Runtime) -> None:
    """Delegate, options, threads and the thread's policy."""
    one = Candidate(runtime.name)
    before = key(dense, one, POLICY, NOTHING)
    for other, name in (
        (dataclasses.replace(one, threads=2), "threads"),
        (dataclasses.replace(one, options='{"a": 1}'), "options"),
    ):
        assert changed(before, key(dense, other, POLICY, NOTHING)) == {name}
    assert changed(before, key(dense, one, ThreadPolicy((1,), "nice"), NOTHING)) == {"cpus"}
    assert changed(before, key(dense, one, ThreadPolicy((0,), "fifo"), NOTHING)) == {"realtime"}


def test_a_touched_library_changes_it(dense: Bundle, runtime: Runtime, tmp_path: Path) -> None:
    """Its time, its size, where a link leads, and that it is gone; its content is not read."""
    first, second, link = tmp_path / "a.so.1", tmp_path / "a.so.2", tmp_path / "a.so"
    first.write_bytes(b"one")
    second.write_bytes(b"two")
    os.utime(second, ns=(first.stat().st_atime_ns, first.stat().st_mtime_ns))
    link.symlink_to(first)
    seen = [key(dense, Candidate(runtime.name), POLICY, Installed(str(link)))]

    def again() -> None:
        seen.append(key(dense, Candidate(runtime.name), POLICY, Installed(str(link))))
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


def test_any_file_under_the_librarys_bare_name_changes_it(
    dense: Bundle, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that lies where the system did not find it before, or would look for it later."""
    one, library = Candidate(runtime.name, "vx"), tmp_path / "real.so"
    library.write_bytes(b"1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    told = Installed(str(library), names=("libedged_nowhere.so", "libedged_nowhere.so.1"))
    before = key(dense, one, POLICY, told)
    for name in told.names:
        (tmp_path / name).write_bytes(b"2")
        after = key(dense, one, POLICY, told)
        assert changed(before, after) == {"library"}
        before = after


def test_another_model_or_other_golden_samples_change_it(dense: Bundle, runtime: Runtime, tmp_path: Path) -> None:
    """Each is told apart by its own hash."""
    wrong = bundle.read(tinymodel.write_dense_bundle(tmp_path / "wrong", wrong_golden=True))
    other = bundle.read(tinymodel.write_int8_bundle(tmp_path / "int8"))
    before = key(dense, Candidate(runtime.name), POLICY, NOTHING)
    assert changed(before, key(wrong, Candidate(runtime.name), POLICY, NOTHING)) == {"golden"}
    assert changed(before, key(other, Candidate(runtime.name), POLICY, NOTHING)) == {"golden", "model"}


def test_another_runtime_version_changes_it(dense: Bundle, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an upgrade everything is measured again."""
    before = key(dense, Candidate(runtime.name), POLICY, NOTHING)
    monkeypatch.setattr(Runtime, "version", property(lambda _: "99.0"))
    assert changed(before, key(dense, Candidate(runtime.name), POLICY, NOTHING)) == {"runtime_version"}


def test_a_runtime_that_cannot_be_imported_is_no_error_here(
    dense: Bundle, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child that measures says so."""

    def broken(_: Runtime) -> str:
        raise ImportError("no libm")

    monkeypatch.setattr(Runtime, "version", property(broken))
    assert key(dense, Candidate(runtime.name), POLICY, NOTHING)["runtime_version"] == "cannot be imported: no libm"


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


def test_what_the_probe_told_is_in_it(dense: Bundle, runtime: Runtime, tmp_path: Path) -> None:
    """The device and the version; and the libraries that came with the vendor's, when one of them changes."""
    one, needed = Candidate(runtime.name, "gpu"), tmp_path / "libneeded.so"
    needed.write_bytes(b"1")
    soft = Installed("/lib/libgpu.so", "2.3", "software rasterizer", (str(needed),))
    before = key(dense, one, POLICY, soft)
    for told in (dataclasses.replace(soft, device="/dev/dri/renderD128"), dataclasses.replace(soft, version="2.4")):
        assert changed(before, key(dense, one, POLICY, told)) == {"device"}
    needed.write_bytes(b"22")
    assert changed(before, key(dense, one, POLICY, soft)) == {"needs"}


@pytest.mark.parametrize(("delegate", "seen"), [("gpu", True), ("vx", False), ("cpu", False)])
def test_the_drivers_variables_are_in_it(
    delegate: str, seen: bool, dense: Bundle, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whom they concern: a row measured with a software driver is none of the real one."""
    one = Candidate(runtime.name, delegate)
    monkeypatch.delenv("VK_ICD_FILENAMES", raising=False)
    before = key(dense, one, POLICY, Installed("/lib/libgpu.so"))
    monkeypatch.setenv("VK_ICD_FILENAMES", "/etc/soft.json")
    assert changed(before, key(dense, one, POLICY, Installed("/lib/libgpu.so"))) == ({"traces"} if seen else set())


def test_the_loaders_path_is_in_it_for_all_but_the_cpu(
    dense: Bundle, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides which library a bare name leads to."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    before = [key(dense, Candidate(runtime.name, name), POLICY, NOTHING)["traces"] for name in ("vx", "cpu")]
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/chip")
    after = [key(dense, Candidate(runtime.name, name), POLICY, NOTHING)["traces"] for name in ("vx", "cpu")]
    assert after == ["LD_LIBRARY_PATH=/opt/chip", before[1]]


def test_the_identity_is_part_of_the_key(dense: Bundle, runtime: Runtime) -> None:
    """A later measurement is told from another one by these alone."""
    one = identity(dense, Candidate(runtime.name), POLICY)
    assert tuple(one) == IDENTITY
    assert one != identity(dense, Candidate(runtime.name, "vx"), POLICY)
    assert one.items() <= key(dense, Candidate(runtime.name), POLICY, NOTHING).items()
