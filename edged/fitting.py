"""How a model is served, by what its configuration asks for and what its bundle can: request by request, several in
one inference, or each on the state of its key. What does not go together is told before anything runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from delegates import registry
from edged.bundle import Bundle, Signature, TensorSpec
from edged.clock import NS_PER_US
from edged.config import ModelConfig
from edged.engines.base import Engine
from edged.errors import ConfigError
from edged.worker import OneByOne, Server, Worker

if TYPE_CHECKING:
    from edged.engines.keyed import KeyedEngine

CPU = (("cpu", dict[str, Any]()),)
Wanted = tuple[tuple[str, Mapping[str, Any]], ...] | None


def _as_it_is(open_one: Callable[[], Engine], nudge: Callable[[], None]) -> Engine:  # noqa: ARG001  # as of `arrange`
    return open_one()


@dataclass(frozen=True)
class Fit:
    """opened: the bundle as an engine opens it. signature: of one request. wanted: the delegates that may serve it.

    server: see WorkerPlan. arrange: called on the worker's thread with what opens the CPU's engine, as often as it is
    called, and with its nudge; returns the engine to serve with.
    """

    opened: Bundle
    signature: Signature
    wanted: Wanted
    server: Callable[[Worker, Engine], Server] = OneByOne
    arrange: Callable[[Callable[[], Engine], Callable[[], None]], Engine] = _as_it_is

    @property
    def only_cpu(self) -> bool:
        """Whether no delegate may serve it that is a process of its own and could fail."""
        wanted = self.wanted
        return wanted is not None and not any(registry.create(name, options).isolated for name, options in wanted)


def fit(model: ModelConfig, loaded: Bundle) -> Fit:
    """Return how the bundle is served. Raises ConfigError for what does not go together."""
    if loaded.manifest.stateful:
        return _stateful(model, loaded)
    if model.batch.max_batch_size > 1:
        return _batched(model, loaded)
    return Fit(loaded, loaded.signature, model.wanted)


def _stateful(model: ModelConfig, loaded: Bundle) -> Fit:
    if model.batch.max_batch_size > 1:
        what = "a model that keeps state takes one request at a time: rows of a batch would share a state"
        raise ConfigError(f"models.{model.name}.batch", what, "leave it out")
    _require_cpu(model, "keeps state, which takes an interpreter for each key in this process")

    def server(worker: Worker, engine: Engine) -> Server:
        from edged.keyed import Keyed  # noqa: PLC0415  # for those who have such a model

        return Keyed(worker, cast("KeyedEngine", engine), model.state.max_keys)

    def arrange(open_one: Callable[[], Engine], nudge: Callable[[], None]) -> Engine:
        from edged.engines.keyed import KeyedEngine  # noqa: PLC0415  # as above

        return KeyedEngine(open_one, model.state.max_keys, model.state.ahead, nudge)

    return Fit(loaded, loaded.signature, model.wanted or CPU, server, arrange)


def _batched(model: ModelConfig, loaded: Bundle) -> Fit:
    wrong = next(_unfit(loaded), None)
    if wrong is not None:
        raise ConfigError(f"models.{model.name}.batch", wrong, "set max_batch_size to 1")
    rows, size = loaded.manifest.inputs[0].shape[0], model.batch.max_batch_size
    opened, wanted = loaded, model.wanted
    if rows == 1 and _open(loaded):
        _require_cpu(model, "leaves its batch open; delegates are measured with a batch of 1, and need one that stays")
        opened, wanted = _as_opened(loaded, size), model.wanted or CPU
    elif rows < size:
        what = f"max_batch_size is {size}, the bundle's batch is {rows}"
        hint = f"convert it with `--batch {size}` or `--dynamic-batch`"
        raise ConfigError(f"models.{model.name}.batch", what, hint)
    timeout_ns = model.batch.batch_timeout_micros * NS_PER_US

    def server(worker: Worker, engine: Engine) -> Server:
        from edged.batched import Batched  # noqa: PLC0415  # for those who ask for it

        return Batched(worker, engine, opened, size, timeout_ns)

    inputs, outputs = _with_rows(loaded.manifest.inputs, 1), _with_rows(loaded.manifest.outputs, 1)
    signature = dataclasses.replace(loaded.signature, inputs=inputs, outputs=outputs)
    return Fit(opened, signature, wanted, server)


def _unfit(loaded: Bundle) -> Iterator[str]:
    """Yield why requests cannot be rows of this bundle."""
    manifest = loaded.manifest
    first = manifest.inputs[0]
    for side, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        for spec in specs:
            if spec.shape[:1] != first.shape[:1] or not spec.shape:
                shapes = f"{list(spec.shape)}, beside {list(first.shape)} of input {first.name!r}"
                yield f"{side} {spec.name!r} has no batch dimension of the same size: {shapes}"
    asked = manifest.postprocess
    if asked.softmax or asked.top_k:
        judged = [spec for spec in manifest.outputs if asked.output in ("", spec.name)]
        if any(len(spec.shape) == 1 for spec in judged):
            yield "its postprocessing ranks the batch itself: the output has no other dimension"


def _require_cpu(model: ModelConfig, why: str) -> None:
    for place, (name, options) in enumerate(model.wanted or ()):
        if registry.create(name, options).isolated:
            where = f"models.{model.name}.delegates"
            raise ConfigError(where, f"{name} (number {place + 1}) cannot serve a model that {why}", "auto or [cpu]")


def _as_opened(loaded: Bundle, rows: int) -> Bundle:
    manifest = loaded.manifest
    inputs, outputs = _with_rows(manifest.inputs, rows), _with_rows(manifest.outputs, rows)
    return dataclasses.replace(loaded, manifest=dataclasses.replace(manifest, inputs=inputs, outputs=outputs))


def _with_rows(specs: tuple[TensorSpec, ...], rows: int) -> tuple[TensorSpec, ...]:
    return tuple(dataclasses.replace(spec, shape=(rows, *spec.shape[1:])) for spec in specs)


def _open(loaded: Bundle) -> bool:
    from edged.engines import tflite_bind, tflite_file  # noqa: PLC0415  # for those who ask for a batch

    return tflite_bind.leaves_rows_open(tflite_file.read(loaded.cpu_model), loaded.manifest.signature)
