"""Delegates are looked for in children: what kills or stops one of them is a reason, and costs nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support import crafted, delegates

from delegates import registry
from delegates.base import Probe
from edged import childprocess, probing


def library(folder: Path, source: str) -> dict[str, Any]:
    return {"library": str(crafted.library(folder / "libcrafted.so", crafted.ENTRY + source))}


def test_a_library_that_crashes_as_it_is_loaded_is_a_reason(tmp_path: Path) -> None:
    """Its constructor dereferences null."""
    found = probing.probe("external", library(tmp_path, crafted.CRASHES))
    assert not found.available
    assert found.reason == "its process was killed by SIGSEGV while it was probed"
    assert found.fix


def test_a_library_that_hangs_as_it_is_loaded_is_a_reason(tmp_path: Path) -> None:
    """Its constructor never returns; the limit ends it."""
    found = probing.probe("external", library(tmp_path, crafted.HANGS), timeout_s=0.5)
    assert not found.available
    assert found.reason == "its process was not done after 0.5 s"


def test_what_a_library_forked_ends_with_it(tmp_path: Path) -> None:
    """A vendor's helper process is not left behind: nobody maps the library any more."""
    options = library(tmp_path, crafted.FORKS_AND_HANGS)
    assert "was not done" in probing.probe("external", options, timeout_s=0.5).reason
    deadline_ns = time.monotonic_ns() + 10**10
    while _users(options["library"]) and time.monotonic_ns() < deadline_ns:  # a killed process takes a moment to go
        time.sleep(0.02)
    assert not _users(options["library"])


def _users(library: str) -> list[Path]:
    return [process for process in Path("/proc").glob("[0-9]*") if library in _maps(process)]


def _maps(process: Path) -> str:
    try:
        return (process / "maps").read_text(errors="replace")
    except OSError:  # it has ended, or is not ours
        return ""


def test_a_good_library_is_available() -> None:
    """The child's answer arrives whole."""
    found = probing.probe("external", {"library": str(delegates.library())})
    assert found == Probe(available=True, library=str(delegates.library()))


def test_wrong_names_and_options_are_reasons() -> None:
    """No exception reaches whoever looks."""
    assert "did you mean 'edgetpu'" in probing.probe("edgetup").reason
    assert "unknown option 'divice'" in probing.probe("edgetpu", {"divice": 1}).reason


def test_the_cpu_needs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a vendor's runs."""
    monkeypatch.setattr(childprocess, "start_answering", None)
    assert probing.probe("cpu").available


def test_all_are_looked_for_but_those_that_need_options() -> None:
    """In the order of the registry, and one that is here is among those that can serve."""
    found = probing.probe_all()
    assert tuple(found) == tuple(name for name in registry.names() if name != "external")
    assert all(one.available or one.reason for one in found.values())
    assert probing.found() == tuple(name for name, one in found.items() if one.available)
    assert probing.found()[0] == "cpu"


def test_what_is_wanted_is_told_by_its_own_name(tmp_path: Path) -> None:
    """Two libraries are two candidates, in the order in which they were named."""
    wanted = [
        ("external", {"library": str(delegates.library("libb.so"))}),
        ("external", {"library": str(delegates.not_a_library())}),
        ("cpu", {}),
        ("edgetup", {}),
    ]
    found = probing.probe_all(wanted)
    assert {name: one.available for name, one in found.items()} == {
        "external:libb.so": True,
        "external:libtext.so": False,
        "cpu": True,
        "edgetup": False,
    }
    assert [one.available for one in probing.probe_each(wanted)] == [True, False, True, False]
