"""The table of vendors: each row names its document, and is one delegate."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import delegates

from delegates.external import UNMEASURED
from delegates.optables import TABLES
from delegates.vendors import ARMNN, NEURON, QNN, ROWS, VX, Row, Vendor


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_tells_where_it_is_from(row: Row) -> None:
    """Documented, and marked so; its table of ops is one that coverage knows."""
    assert row.source.startswith("https://")
    assert row().note.startswith(f"{UNMEASURED} ({row.source}")
    assert row.table in TABLES
    assert row.table.name == row.name
    assert set(row.defaults) <= set(row.keys)
    assert row.install


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_every_key_of_the_document_is_taken(row: Row) -> None:
    """Beside `library`, and `options` for what the table does not know."""
    given = dict.fromkeys(row.keys, "1")
    assert Vendor(row, {"library": "/x.so", "options": {"newer": 2}, **given}).told(None) == {**given, "newer": "2"}


def test_defaults_give_way() -> None:
    """What the configuration says wins; the rest stays."""
    assert ARMNN().told(None) == {"backends": "GpuAcc,CpuAcc"}
    assert ARMNN({"backends": "CpuAcc", "number-of-threads": 2}).told(None) == {
        "backends": "CpuAcc",
        "number-of-threads": "2",
    }


def test_the_cache_is_on_where_it_is_safe(tmp_path: Path) -> None:
    """Qualcomm's directory is of one model; VeriSilicon's one file would serve every partition, so it must be asked."""
    assert QNN().caches
    assert QNN().told(tmp_path) == {"backend_type": "htp", "cache_dir": str(tmp_path), "model_token": "edged"}
    assert QNN().told(None) == {"backend_type": "htp", "model_token": "edged"}
    assert not VX().caches
    asked = VX({"allowed_cache_mode": True, "cache_file_path": "{cache}/model.nbg"})
    assert asked.told(tmp_path) == {"allowed_cache_mode": "true", "cache_file_path": f"{tmp_path}/model.nbg"}


def test_the_library_alone_is_not_enough(tmp_path: Path) -> None:
    """The node of the device is looked for; the fix names the way around."""
    options = {"library": str(delegates.library("libvx_delegate.so"))}
    found = Vendor(VX, options, tmp_path).probe()
    assert (found.available, found.reason) == (False, "there is no /dev/galcore")
    assert "external: {library:" in found.fix
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/galcore").touch()
    found = Vendor(VX, options, tmp_path).probe()
    assert (found.available, found.device) == (True, "/dev/galcore")


def test_a_row_without_a_node_needs_the_library_alone(tmp_path: Path) -> None:
    """Arm NN runs on the CPU as well."""
    library = str(delegates.library("libarmnnDelegate.so"))
    assert Vendor(ARMNN, {"library": library}, tmp_path).probe().available


def test_mediateks_library_is_told_for_what_it_is(tmp_path: Path) -> None:
    """It is there and of no use to Python, which is said."""
    from support import crafted

    library = crafted.library(tmp_path / NEURON.libraries[0], crafted.STABLE)
    found = Vendor(NEURON, {"library": str(library)}, tmp_path).probe()
    assert "stable delegates" in found.reason
    assert found.library == str(library)
