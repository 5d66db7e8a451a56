"""The real model: a 1D CNN trained on smartwatch recordings, exported by Keras, converted by `edged convert`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from converters.demo import prepare
from converters.demo.children import Children


def make_bundle(directory: Path) -> prepare.Prepared:
    """Train and convert in child processes (some 25 s); without TensorFlow or the data a skip, in CI a failure."""
    missing = [name for name in ("tensorflow", "aeon") if find_spec(name) is None]
    if missing:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"missing: {', '.join(missing)}")
    with Children(directory) as children:
        return prepare.convert(children, directory, prepare.train(children, directory))
