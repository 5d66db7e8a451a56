"""Fixtures of the integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import tinymodel


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model `dense`: version 1 as a directory, 2 and 3 as files, version 4 as a directory."""
    tinymodel.write_dense_bundle(tmp_path / "one")
    for name, version in (("two.tar", 2), ("three.tar", 3), ("four", 4)):
        tinymodel.write_dense_bundle(tmp_path / name, version=version)
    return tmp_path
