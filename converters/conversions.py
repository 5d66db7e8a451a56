"""The TensorFlow child seen from outside: it converts several modes in one start, and is started again after a death.

Its folder keeps, for all modes, inputs.npz, floats.npz and labels.npz, and for each MODE/model.tflite.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from converters import child, plain
from converters.child import DiedError, OnStage
from converters.found import Converted, Found
from converters.options import Options
from converters.texts import Texts
from edged.errors import EdgedError, InternalError

Outcome = Converted | EdgedError | DiedError
_MODULE = "converters.work"
# Written by the child: that a mode was begun, and what became of it.
BEGUN, RESULT, MODEL = "begun", "converted.json", "model.tflite"


class Conversions:
    """Every mode that was converted so far: `outcomes`, by mode. A mode that failed does not stop the others."""

    def __init__(
        self, options: Options, texts: Texts, folder: Path, on_stage: OnStage, on_log: Callable[[str], object]
    ) -> None:
        self.folder = folder
        self.outcomes: dict[str, Outcome] = {}
        self._options, self._texts = options, texts
        self._on_stage, self._on_log = on_stage, on_log
        self._found: Found | None = None
        self._killed = False

    @property
    def found(self) -> Found:
        """What holds for every mode; `run` has returned before."""
        if self._found is None:
            raise InternalError("converters", "no conversion was run")
        return self._found

    def model(self, mode: str) -> Path:
        """Where a converted mode's file lies."""
        return self.folder / mode / MODEL

    def run(self, modes: Sequence[str]) -> None:
        """Convert `modes`, those that were not yet. Raises EdgedError for what no mode can do anything about."""
        todo = [mode for mode in modes if mode not in self.outcomes]
        try:
            while todo or self._found is None:
                self._once(todo)
                todo = [mode for mode in todo if mode not in self.outcomes]
        finally:
            if self._options.verbose and (self.folder / "log").exists():
                self._on_log((self.folder / "log").read_text(errors="replace"))

    def _once(self, modes: Sequence[str]) -> None:
        job = {
            "options": self._options.to_plain(),
            "cwd": str(Path.cwd()),
            "image": self._texts.image,
            "labels": list(self._texts.labels),
            "postprocess": dataclasses.asdict(self._texts.postprocess),
            "modes": list(modes),
        }
        try:
            value = child.run(_MODULE, job, self.folder, self._on_stage, self._options.limits)
        except DiedError as exc:
            dead = [mode for mode in modes if self._state(mode, BEGUN) and not self._state(mode, RESULT)]
            if not self._tried_again(exc):
                if not dead:
                    raise self._death(exc) from exc
                self.outcomes[dead[0]] = exc
        else:
            self._found = plain.build(Found, value, "SavedModel")
        self._collect(modes)

    def _tried_again(self, exc: DiedError) -> bool:
        """Whether the child is worth another start: once, where it was killed from outside, which is no verdict."""
        if self._killed or exc.broken or not exc.by_chance:
            return False
        self._killed = True
        self._on_stage(f"starting TensorFlow again: it {exc.reason}")
        return True

    def _state(self, mode: str, name: str) -> bool:
        return (self.folder / mode / name).exists()

    def _collect(self, modes: Sequence[str]) -> None:
        for mode in modes:
            if mode in self.outcomes or not self._state(mode, RESULT):
                continue
            value = json.loads((self.folder / mode / RESULT).read_text())
            failed = "error" in value
            self.outcomes[mode] = (
                child.error(value["error"]) if failed else plain.build(Converted, value, "converted model")
            )

    def _death(self, exc: DiedError) -> InternalError:
        return InternalError(f"TensorFlow on {self._options.model}", exc.reason, "--verbose shows what it printed")
