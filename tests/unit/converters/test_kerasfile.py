"""Keras files are read with suspicion before Keras sees them; no Keras is needed to refuse them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from converters import front, kerasfile
from edged.errors import BadDataError


def keras_file(path: Path, config: Any, version: str = "3.9.0") -> front.Given:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
        file.writestr("metadata.json", json.dumps({"keras_version": version}))
    return front.find(path)


def test_code_in_a_file_is_refused_at_any_depth(tmp_path: Path) -> None:
    """A Lambda layer inside a model inside a wrapper: named, and nothing of it is run."""
    inner = {"class_name": "Lambda", "config": {"name": "evil", "function": ["4wEAAAA"]}}
    config = {"class_name": "Functional", "config": {"layers": [{"class_name": "TimeDistributed", "layer": inner}]}}
    with pytest.raises(BadDataError, match=r"Lambda layer 'evil', code in a file.*model\.export"):
        kerasfile.export(keras_file(tmp_path / "m.keras", config), tmp_path)


def test_a_broken_description(tmp_path: Path) -> None:
    """config.json that is no JSON: one line."""
    with pytest.raises(BadDataError, match="cannot be read as a Keras file"):
        kerasfile.export(keras_file(tmp_path / "m.keras", "{"), tmp_path)


@pytest.mark.parametrize(
    ("version", "old"),
    [("3.0.0", False), ("10.1", False), ("2.15.0", True), ("2.3.0-tf", True), ("", True), ("x", True)],
)
def test_which_keras_wrote_it(version: str, old: bool, tmp_path: Path) -> None:
    """Keras 2 is tried for what it may have written, or what says nothing."""
    config = kerasfile._config(keras_file(tmp_path / "m.keras", {}, version))
    assert config.is_old is old
