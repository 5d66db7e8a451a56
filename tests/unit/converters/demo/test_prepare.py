"""What the demo takes from the converter it ran: the bundle's facts, and the warnings a user would have read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from support import tinymodel

from converters.demo import prepare
from converters.demo.children import Children


class Converted:
    """Stands for the children: `edged convert` has made a bundle and said something."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def python(self, *args: str) -> Converted:
        tinymodel.write_dense_bundle(Path(args[args.index("-o") + 1]))
        self.log.write_text("bundle: m version 1\nwarning: c.npz: only 40 samples\nI0000 noise\nwarning: two\n")
        return self

    def finish(self, _timeout_s: float) -> None:
        pass


def test_the_converters_warnings_are_passed_on(tmp_path: Path) -> None:
    """Each of its warnings, and nothing else of its log."""
    children: Any = Converted(tmp_path / "log")
    trained = {"train_s": 1.0, "accuracy": 1.0, "input": "x"}
    prepared = prepare.convert(cast("Children", children), tmp_path, trained)
    assert prepared.facts["warnings"] == ["c.npz: only 40 samples", "two"]
