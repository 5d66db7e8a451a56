"""What the parent of an isolated engine tells its child: what to open, and how; and what the child says to that.

The order lies in a sealed file in memory: a line of JSON, then the manifest and the models, as the parent has verified
them. Nothing is read from a path, where something else may lie by now. The answer is one message of JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from delegates.base import Opening
from edged import errors, manifest
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.engines import isolated_block
from edged.engines.base import EngineInfo
from edged.engines.candidate import Candidate
from edged.errors import EdgedError
from edged.manifest import MODEL, MODEL_CPU

MAX_ANSWER = 1 << 16
# Of each text of a refusal, which has three at most: JSON takes up to twelve bytes for a character.
_MAX_TEXT = 1700
_PLAIN: Mapping[str, type[Exception]] = {"OSError": OSError, "ValueError": ValueError}


@dataclass(frozen=True)
class Order:
    """bundle: with its manifest and models only. how: of the opening; policy: of the thread."""

    bundle: Bundle
    candidate: Candidate
    how: Opening
    policy: ThreadPolicy

    def written(self) -> int:
        """Return the descriptor of a sealed file that holds it."""
        files = {MODEL: self.bundle.model, MODEL_CPU: self.bundle.cpu_model}
        if files[MODEL] is files[MODEL_CPU]:
            del files[MODEL_CPU]
        parts = {"": manifest.dump(self.bundle.manifest), **files}
        head = {
            "path": str(self.bundle.path), "candidate": asdict(self.candidate), "policy": asdict(self.policy),
            "cache": None if self.how.cache is None else str(self.how.cache), "alone": self.how.alone,
            "threads": self.how.threads, "parts": {name: len(data) for name, data in parts.items()},
        }  # fmt: skip
        fd = isolated_block.file("edged-order", [json.dumps(head).encode(), b"\n", *parts.values()])
        isolated_block.seal(fd, isolated_block.READ_ONLY)
        return fd

    @classmethod
    def read(cls, fd: int) -> Order:
        """Read it, and close the descriptor."""
        with os.fdopen(fd, "rb") as stream:
            head = json.loads(stream.readline())
            files = {name: stream.read(length) for name, length in head["parts"].items()}
        found = Bundle(Path(head["path"]), manifest.parse(files.pop(""), head["path"]), files)
        policy = ThreadPolicy.of(head["policy"])
        cache = None if head["cache"] is None else Path(head["cache"])
        return cls(found, Candidate(**head["candidate"]), Opening(cache, head["alone"], head["threads"]), policy)


@dataclass(frozen=True)
class Opened:
    """What the child says when it serves. scheduling: what `ThreadPolicy.apply` achieved."""

    info: EngineInfo
    scheduling: str

    def message(self) -> bytes:
        """As it is sent."""
        return json.dumps({"info": asdict(self.info), "scheduling": self.scheduling}).encode()


def refusal(exc: Exception) -> bytes:
    """Return the message of a child that could not open."""
    kind = "OSError" if isinstance(exc, OSError) else type(exc).__name__  # any of its kinds
    if isinstance(exc, EdgedError):
        texts = {"where": exc.where, "what": exc.what, "hint": exc.hint}
    else:
        texts = {"text": str(exc) or type(exc).__name__}
    return json.dumps({"error": kind, **{name: text[-_MAX_TEXT:] for name, text in texts.items()}}).encode()


def understood(message: bytes) -> Opened:
    """Return what a child said that serves; else raise the error that it met, as it would have been raised here."""
    told: dict[str, Any] = json.loads(message)
    if "info" in told:
        return Opened(EngineInfo(**told["info"]), told["scheduling"])
    if "what" in told:
        kind = getattr(errors, told["error"], EdgedError)
        raise kind(told["where"], told["what"], told["hint"])
    raise _PLAIN.get(told["error"], RuntimeError)(told["text"])
