"""From a configuration to the parts of a daemon: bundles read and verified, workers and streams made, none started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edged import bundle
from edged.admission import Admission, Bounds, Sweeper
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.config import Config, ModelConfig
from edged.engines import tflite_runtime
from edged.engines.base import Engine
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError, ConfigError
from edged.figures import ModelFigures
from edged.intake import Publish
from edged.router import Router
from edged.selection import Selector, Wish
from edged.streams import Stream
from edged.worker import Opener, Worker, WorkerPlan


@dataclass(frozen=True)
class Parts:
    """What the daemon runs: workers by model name, the streams that feed them, and who chooses what serves.

    workers: one mapping for all rooms. A swap puts another worker under the name, which is one step for every reader.
    """

    workers: dict[str, Worker]
    streams: tuple[Stream, ...]
    selector: Selector


def read_bundles(config: Config) -> dict[str, Bundle]:
    """Read and verify every model's bundle. Raises BadDataError naming all that are wrong, one a line."""
    bundles: dict[str, Bundle] = {}
    wrong: list[str] = []
    for model in config.models:
        try:
            bundles[model.name] = bundle.read(model.bundle)
        except BadDataError as exc:
            wrong.append(str(exc))
    if wrong:
        raise BadDataError(f"{len(wrong)} of {len(config.models)} bundles", "; ".join(wrong))
    return bundles


def refuse_stateful(config: Config, bundles: Mapping[str, Bundle]) -> None:
    """Raise ConfigError for a model that keeps state from one inference to the next."""
    for model in config.models:
        if bundles[model.name].manifest.stateful:
            # One interpreter for all would mix what its callers said before.
            raise ConfigError(f"models.{model.name}", "stateful models are not supported yet", str(model.bundle))


def assemble(
    config: Config, router: Router, sweeper: Sweeper, publish: Publish, on_state: Callable[[Worker], None]
) -> Parts:
    """Make the workers and streams of `config`. Raises an EdgedError for what can be told before anything runs."""
    bundles = read_bundles(config)
    refuse_stateful(config, bundles)
    selector = Selector(config.state_dir, config.selection.candidate_s, config.selection.total_s)
    workers = {}
    for model in config.models:
        engine = _opener(model, bundles[model.name], selector)
        plan = WorkerPlan(model.name, bundles[model.name], engine, policy(model), model.warmup)
        bounds = Bounds(model.queue.max_requests, model.queue.max_bytes, model.queue.overflow)
        admission = Admission(bounds, sweeper, router.fail)
        workers[model.name] = Worker(plan, admission, ModelFigures(), on_state)
    return Parts(workers, _streams(config, bundles, router, publish), selector)


def _streams(config: Config, bundles: Mapping[str, Bundle], router: Router, publish: Publish) -> tuple[Stream, ...]:
    deadlines = {model.name: model.deadline_ms for model in config.models}
    streams = []
    for stream in config.streams:
        signature = bundles[stream.model].signature
        deadline_ms = stream.deadline_ms or deadlines[stream.model]
        try:
            made = Stream(stream, signature, config.device, router.submit, publish, deadline_ms)
        except ValueError as exc:
            raise ConfigError(f"streams.{stream.name}", str(exc)) from exc
        streams.append(made)
    return tuple(streams)


def _opener(model: ModelConfig, loaded: Bundle, selector: Selector) -> Opener:
    """Return what the worker calls on its own thread."""
    wish = Wish(model.wanted, [one.name for one in runtimes(model)], model.threads, policy(model))

    def open_engine(nudge: Callable[[], None], note: Callable[[str], None]) -> Engine:
        from edged.selection.serving import Serving  # noqa: PLC0415  # with the runtime, off the main thread

        return Serving(selector, model.name, loaded, wish, model.failover, nudge, note).open()

    return open_engine


def policy(model: ModelConfig) -> ThreadPolicy:
    """Return where the model's thread runs, and before whom."""
    return ThreadPolicy(model.cpus, model.realtime)


def runtimes(model: ModelConfig) -> tuple[Runtime, ...]:
    """Return the runtimes that may serve the model: the one named, or every installed one.

    Raises UnavailableError when it is not installed, or none is.
    """
    if model.runtime == "auto":
        return tflite_runtime.installed()
    return (tflite_runtime.by_name(model.runtime),)
