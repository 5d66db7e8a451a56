"""Delegates are looked for in children: what kills or stops one of them is a reason, and costs nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import crafted, delegates
from support.brokers import eventually

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


def by_name(wanted: Sequence[probing.Wanted] | None = None) -> dict[str, Probe]:
    """Look for several at once: what was found, by the name it is told by."""
    chosen = probing.everything() if wanted is None else wanted
    return {probing.told(*item): one for item, one in zip(chosen, probing.probe_each(chosen), strict=True)}


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
    assert replace(found, needs=()) == Probe(available=True, library=str(delegates.library()))


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
    found = by_name()
    assert tuple(found) == tuple(name for name in registry.names() if name != "external")
    assert all(one.available or one.reason for one in found.values())
    assert found["cpu"].available


def test_what_is_wanted_is_told_by_its_own_name(tmp_path: Path) -> None:
    """Two libraries are two candidates, in the order in which they were named."""
    wanted = [
        ("external", {"library": str(delegates.library("libb.so"))}),
        ("external", {"library": str(delegates.not_a_library())}),
        ("cpu", {}),
        ("edgetup", {}),
    ]
    found = by_name(wanted)
    assert {name: one.available for name, one in found.items()} == {
        "external:libb.so": True,
        "external:libtext.so": False,
        "cpu": True,
        "edgetup": False,
    }
    assert [one.available for one in probing.probe_each(wanted)] == [True, False, True, False]


def test_the_libraries_that_came_along_are_told(tmp_path: Path) -> None:
    """Those that the vendor's library needs, as files; not the ones that were there before."""
    needed = crafted.library(tmp_path / "libneeded.so", "int needed(void) { return 1; }")
    source = f"{crafted.ENTRY}int needed(void); int mine(void) {{ return needed(); }}"
    main = crafted.library(tmp_path / "libmain.so", source, needed)
    found = probing.probe("external", {"library": str(main)})
    assert (found.available, found.needs) == (True, (str(needed),))


def test_a_stop_ends_the_looking(tmp_path: Path) -> None:
    """What runs is killed at once, and nothing else is started."""
    stopped, found = threading.Event(), []
    options = library(tmp_path, crafted.HANGS)
    looking = threading.Thread(target=lambda: found.append(probing.probe("external", options, 60, stopped=stopped)))
    looking.start()
    eventually(lambda: _users(options["library"]), "the library is loaded")
    stopped.set()
    looking.join(10)
    assert [one.reason for one in found] == ["its process was stopped"]


def test_after_a_stop_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child, and nothing is available."""
    stopped = threading.Event()
    stopped.set()
    monkeypatch.setattr(childprocess, "start_answering", None)
    assert not any(one.available for one in probing.probe_each([("vx", {}), ("gpu", {})], stopped=stopped))


@pytest.mark.parametrize(
    ("library_does", "reason"),
    [
        ("exit(0);", "its process ended without an answer while it was probed"),
        ("_exit(0);", "its process ended without an answer while it was probed"),
        ("if (fork()) _exit(0); usleep(300000);", "its process ended without an answer while it was probed"),
        ("exit(7);", "its process ended with 7 while it was probed"),
        ('for (int i = 0; i < 20; i++) puts("{\\"available\\": true}"); fflush(0); _exit(0);', "without an answer"),
        ("kill(0, SIGKILL);", "its process was killed by SIGKILL"),
    ],
)
def test_a_library_that_ends_its_process_is_a_reason(library_does: str, reason: str, tmp_path: Path) -> None:
    """Whatever status it gives, and whatever it prints before."""
    source = "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
    ends = f"{source}__attribute__((constructor)) static void ends(void) {{ {library_does} }}"
    found = probing.probe("external", library(tmp_path, ends))
    assert not found.available
    assert reason in found.reason
    eventually(lambda: not _users(str(tmp_path / "libcrafted.so")), "what it forked, and that was killed, is gone")


def test_options_of_any_length_reach_the_child() -> None:
    """Longer than an argument may be."""
    options = {"library": str(delegates.library()), "options": {"log": "x" * 300_000}}
    assert probing.probe("external", options).available


@pytest.mark.parametrize("ends", ["import os; os._exit(5)", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"])
def test_a_package_that_ends_its_process_ends_a_child(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is imported nowhere else before it has been imported there."""
    (tmp_path / "fatal.py").write_text(ends)
    info = tmp_path / "fatal-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fatal\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\nfatal = fatal:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = by_name([("fatal", {}), ("cpu", {})])
    assert [(name, one.available) for name, one in found.items()] == [("fatal", False), ("cpu", True)]
    assert found["fatal"].reason.endswith("while it was probed")
