"""The part of the configuration that tells of the models: their delegates, queues, threads, and what happens when an
accelerator fails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from delegates import registry
from edged.checks import above, at_least, at_most, byte_size, not_empty, show, unique
from edged.config_streams import LevelName, Millis
from edged.schema import Problem

DAY_S = 86_400
MAX_BYTES = 1 << 50
ByteSize = Annotated[int, byte_size, at_least(1), at_most(MAX_BYTES)]
# Of models among each other, the most urgent first.
PRIORITIES = ("high", "normal", "low")
Cpus = Annotated[tuple[Annotated[int, at_least(0), at_most(65_535)], ...], unique]
DelegateName = Annotated[str, not_empty]
DelegateOptions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class FailoverConfig:
    """How a delegate that fails is noticed, and when it is taken back; the CPU answers meanwhile."""

    hang_factor: Annotated[float, above(1), at_most(1_000_000)] = field(
        default=20.0, metadata={"help": "An inference hangs after this many times the delegate's P99."}
    )
    hang_floor_ms: Millis = field(
        default=250,
        metadata={
            "help": "But never before these milliseconds; the first one of its process, which may compile, is given a "
            "second or more."
        },
    )
    recheck_s: Annotated[float, at_least(0), at_most(DAY_S)] = field(
        default=60.0, metadata={"help": "Seconds between two golden samples that it must reproduce; 0 for none."}
    )
    probes: Annotated[int, at_least(1), at_most(1000)] = field(
        default=3, metadata={"help": "Good probes in a row before it is taken back."}
    )
    backoff_s: Annotated[float, at_least(0.1), at_most(DAY_S)] = field(
        default=1.0, metadata={"help": "Seconds to the first probe of one that failed; doubled after each that fails."}
    )
    backoff_max_s: Annotated[float, at_least(0.1), at_most(DAY_S)] = field(
        default=300.0, metadata={"help": "Seconds between two probes at most."}
    )

    def problems(self) -> Iterator[Problem]:
        """Yield what does not go together."""
        if self.backoff_max_s < self.backoff_s:
            yield Problem("backoff_max_s", f"must be at least backoff_s, {self.backoff_s:g}")


@dataclass(frozen=True, kw_only=True)
class SelectionConfig:
    """How long a delegate may be measured. What is not measured in time is not chosen."""

    candidate_s: Annotated[float, at_least(1), at_most(DAY_S)] = field(
        default=120.0, metadata={"help": "Seconds for one candidate, its compilation included."}
    )
    total_s: Annotated[float, at_least(1), at_most(DAY_S)] = field(
        default=600.0, metadata={"help": "Seconds for all candidates of one model; the CPU has time of its own."}
    )


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """How much may wait for one model."""

    max_requests: Annotated[int, at_least(1), at_most(1_000_000)] = field(
        default=64, metadata={"help": "Requests that may wait."}
    )
    max_bytes: ByteSize = field(default=64 << 20, metadata={"help": "Payload bytes that may wait."})
    overflow: Literal["reject", "drop_oldest"] = field(
        default="reject", metadata={"help": "When full: refuse the new request, or the one that has waited longest."}
    )


@dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Requests of one row each, gathered into one inference of a model that was exported with a batch dimension."""

    max_batch_size: Annotated[int, at_least(1), at_most(4096)] = field(
        default=1, metadata={"help": "Rows of one inference at most; 1 gathers nothing, else each request is one row."}
    )
    batch_timeout_micros: Annotated[int, at_least(0), at_most(10_000_000)] = field(
        default=0, metadata={"help": "Microseconds to wait for more rows once the first one is there."}
    )


@dataclass(frozen=True, kw_only=True)
class StateConfig:
    """A model that keeps state has an interpreter for each key: a user, one of a user's own keys, a key of a stream."""

    max_keys: Annotated[int, at_least(1), at_most(100_000)] = field(
        default=64,
        metadata={"help": "Keys with a state at once; of whoever has most, the one silent longest makes room."},
    )
    ahead: Annotated[int, at_least(0), at_most(1000)] = field(
        default=1, metadata={"help": "Interpreters made ready for new keys; each takes as much memory as a key."}
    )


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """One model to serve."""

    name: LevelName = field(metadata={"help": "Name in topics and reports.", "example": "har"})
    bundle: Path = field(metadata={"help": "The bundle: a directory or a .tar.", "example": "bundles/har"})
    delegates: (
        Literal["auto"]
        | Annotated[tuple[DelegateName | DelegateOptions, ...], not_empty, unique]
        | Annotated[DelegateOptions, not_empty]
    ) = field(
        default="auto",
        metadata={
            "help": "auto for whatever is found here, or candidates such as [edgetpu, cpu], "
            "{external: {library: libvx_delegate.so, options: {}}} or a list of both; the fastest that agrees serves."
        },
    )
    runtime: Literal["auto", "ai-edge-litert", "tflite-runtime"] = field(
        default="auto", metadata={"help": "TFLite runtime; auto measures where both are installed."}
    )
    threads: Literal["auto"] | Annotated[int, at_least(1), at_most(256)] = field(
        default=1, metadata={"help": "Threads of one inference; 1 gives the steadiest P99, auto measures 1, 2 and 4."}
    )
    cpus: Cpus = field(
        default=(), metadata={"help": "CPUs the model's thread is pinned to; [] leaves it to the system."}
    )
    realtime: Literal["auto", "fifo", "nice", "off"] = field(
        default="auto", metadata={"help": "Priority of the model's thread; auto takes the best that is permitted."}
    )
    priority: Literal["high", "normal", "low"] = field(
        default="normal", metadata={"help": "Before which other models of this device its thread runs."}
    )
    queue: QueueConfig = field(default=QueueConfig(), metadata={"help": "How much may wait."})
    deadline_ms: Millis = field(
        default=1000, metadata={"help": "Milliseconds from receipt to answer, where the request does not say."}
    )
    warmup: Annotated[int, at_least(0), at_most(100_000)] = field(
        default=10, metadata={"help": "Inferences before the model counts as ready."}
    )
    keep_warm_ms: Annotated[int, at_least(0), at_most(DAY_S * 1000)] = field(
        default=0,
        metadata={"help": "Milliseconds without a request after which an inference is run for nothing; 0 off."},
    )
    failover: FailoverConfig = field(default=FailoverConfig(), metadata={"help": "When an accelerator fails."})
    batch: BatchConfig = field(default=BatchConfig(), metadata={"help": "Several requests in one inference."})
    state: StateConfig = field(
        default=StateConfig(), metadata={"help": "Of a model that keeps state from one inference to the next."}
    )

    @property
    def wanted(self) -> tuple[tuple[str, Mapping[str, Any]], ...] | None:
        """The delegates that were asked for, with their options, in the order given; None for auto."""
        if self.delegates == "auto":
            return None
        items = (self.delegates,) if isinstance(self.delegates, Mapping) else self.delegates
        named = [{item: {}} if isinstance(item, str) else item for item in items]
        return tuple(pair for item in named for pair in item.items())

    def problems(self) -> Iterator[Problem]:
        """Yield what does not go together."""
        yield from self._delegate_problems()
        if self.cpus and self.threads != "auto" and self.threads > len(self.cpus):
            what = f"{self.threads} threads on {len(self.cpus)} CPU"
            yield Problem("threads", f"{what}: never pin a multi-thread pool on fewer CPUs than threads")
        if self.batch.max_batch_size > self.queue.max_requests:
            what = f"{self.batch.max_batch_size} rows, of requests that wait, of which there are at most"
            yield Problem("batch.max_batch_size", f"{what} {self.queue.max_requests} (queue.max_requests)")

    def _delegate_problems(self) -> Iterator[Problem]:
        """Yield unknown delegates and options; no library is looked for."""
        if self.wanted == ():
            yield Problem("delegates", "names no delegate")
        for place, (name, options) in enumerate(self.wanted or ()):
            where = f"delegates[{place}]" if isinstance(self.delegates, tuple) else f"delegates.{name}"
            if wrong := next(_not_kept(options, name), None):
                yield Problem(where, wrong)
                continue
            try:
                registry.create(name, with_library_below(Path("/"), options))
            except (KeyError, ValueError) as exc:
                yield Problem(where, str(exc.args[0]))


def _not_kept(options: object, where: str) -> Iterator[str]:
    """Yield what of a delegate's options JSON cannot hold, in which they are kept and told."""
    if isinstance(options, float) and not math.isfinite(options):
        yield f"{where} must be a finite number, got {show(options)}"
    elif isinstance(options, Mapping):
        for key, value in options.items():
            yield from _not_kept(value, f"{where}: option {key!r}")
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _not_kept(value, where)


def with_library_below(base: Path, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a delegate's options with the path of its library absolute; a bare name is the system's to find."""
    library = options.get("library")
    if isinstance(library, str) and "/" in library:
        return {**options, "library": str(base / library)}
    return options
