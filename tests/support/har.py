"""The real model: a 1D CNN trained on smartwatch recordings, exported by Keras, converted by `edged convert`."""

from __future__ import annotations

from pathlib import Path

from support import require

from converters.demo import prepare
from converters.demo.children import Children


def make_bundle(directory: Path) -> prepare.Prepared:
    """Train and convert in child processes (some 25 s); without TensorFlow or the data a skip, in CI a failure."""
    require.packages("tensorflow", "aeon")
    with Children(directory) as children:
        return prepare.convert(children, directory, prepare.train(children, directory))
