"""A library is opened, or one line says why not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import crafted, delegates

from delegates.sharedlibrary import SharedLibrary


def test_the_path_is_that_of_the_file_behind_the_links(tmp_path: Path) -> None:
    """Whoever keeps a measurement by the library must see it change, so links are resolved."""
    real = shutil.copy(delegates.library(), tmp_path / "libedgetpu.so.1.0")
    link = tmp_path / "libedgetpu.so.1"
    link.symlink_to(real)
    library = SharedLibrary([str(link)])
    assert (library.path, library.version) == (str(real), "1.0")


def test_a_bare_name_is_found_by_the_loader() -> None:
    """The C library itself is found without a path, and its real path is told as the kernel maps it."""
    library = SharedLibrary(["libc.so.6"])
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc" in line}
    assert library.path in mapped
    assert library.has("printf")
    assert not library.has("no_such_function_anywhere")


def test_a_bare_name_is_found_on_the_library_path(tmp_path: Path) -> None:
    """LD_LIBRARY_PATH, which the loader reads once as a process starts, leads to a vendor's folder."""
    shutil.copy(delegates.library(), tmp_path / "libvx_delegate.so")
    code = "from delegates.sharedlibrary import SharedLibrary; print(SharedLibrary(['libvx_delegate.so']).path)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30,
                          cwd=Path(__file__).parents[3], env={"LD_LIBRARY_PATH": str(tmp_path)})  # fmt: skip
    assert done.stdout.strip() == str(tmp_path / "libvx_delegate.so")


def test_the_first_name_that_is_there_is_taken() -> None:
    """A vendor renames its library; both names are known."""
    there = str(delegates.library())
    assert SharedLibrary(["libno_such.so", there]).path == there


def test_a_broken_library_is_told_before_missing_ones() -> None:
    """The one that is there is the one to mend."""
    with pytest.raises(OSError, match=r"libtext\.so cannot be loaded as a library"):
        SharedLibrary(["libno_such.so", str(delegates.not_a_library())])


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """A missing library, and a missing library of a library, are two things to mend."""
    with pytest.raises(OSError, match=r"^libno_such\.so is not found on this system$"):
        SharedLibrary(["libno_such.so"])
    with pytest.raises(OSError, match=r"^/no/such\.so is not there$"):
        SharedLibrary(["/no/such.so"])
    needed = crafted.library(tmp_path / "libneeded.so", "int needed = 1;")
    needy = crafted.library(tmp_path / "libneedy.so", "extern int needed; int n(void) { return needed; }", needed)
    needed.unlink()
    with pytest.raises(OSError, match=r"libneedy\.so needs .*libneeded\.so, which is not found on this system$"):
        SharedLibrary([str(needy)])


def test_a_symbol_that_is_missing_is_named(tmp_path: Path) -> None:
    """A library for another version of its runtime."""
    crafted.library(tmp_path / "lib.so", "extern int glFenceSync(void); int a(void) { return glFenceSync(); }")
    with pytest.raises(OSError, match="undefined symbol: glFenceSync"):
        SharedLibrary([str(tmp_path / "lib.so")])


def test_what_is_no_delegate_is_told_so(tmp_path: Path) -> None:
    """A library without the entry point, and one with the other interface that Python runtimes cannot use."""
    with pytest.raises(ValueError, match=r"libnotadelegate\.so is no TFLite delegate: it has no tflite_plugin_create"):
        SharedLibrary([str(delegates.not_a_delegate())]).require_delegate()
    stable = crafted.library(tmp_path / "libneuron_stable_delegate.so", crafted.STABLE)
    with pytest.raises(ValueError, match="stable delegates"):
        SharedLibrary([str(stable)]).require_delegate()
    SharedLibrary([str(delegates.library())]).require_delegate()
