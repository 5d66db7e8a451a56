"""One way to run a model: a runtime, a delegate with its options, and how many threads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delegates import registry
from delegates.base import Delegate


@dataclass(frozen=True)
class Candidate:
    """runtime: package name. delegate: its name in the registry. options: canonical JSON of the delegate's options."""

    runtime: str
    delegate: str = "cpu"
    options: str = "{}"
    threads: int = 1

    @classmethod
    def of(cls, runtime: str, delegate: str, options: Mapping[str, Any] | None = None, threads: int = 1) -> Candidate:
        """Make one from a mapping of options."""
        return cls(runtime, delegate, json.dumps(options or {}, sort_keys=True), threads)

    def create(self) -> Delegate:
        """Construct the delegate. Raises KeyError for an unknown name, ValueError for an unknown option."""
        return registry.create(self.delegate, json.loads(self.options))

    @property
    def label(self) -> str:
        """For a person: `edgetpu on tflite-runtime, 2 threads`."""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{self.create().name} on {self.runtime}{threads}"
