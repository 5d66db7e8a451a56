"""One way to run a model: a runtime, a delegate with its options, and how many threads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from delegates import registry
from delegates.base import Delegate
from delegates.select import Measured


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

    def unmeasured(self) -> Measured:
        """Return the row of one of which nothing is known yet."""
        return Measured(self.label, self.runtime, self.create().name, self.threads, self.options)

    def row(self, found: Measured) -> Measured:
        """Return a row with what was found, which says itself which candidate it is of."""
        mine = self.unmeasured()
        return replace(
            found, label=mine.label, runtime=mine.runtime, delegate=mine.delegate, threads=mine.threads,
            options=mine.options,
        )  # fmt: skip

    @property
    def label(self) -> str:
        """For a person: `edgetpu on tflite-runtime, 2 threads`."""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{self.create().name} on {self.runtime}{threads}"
