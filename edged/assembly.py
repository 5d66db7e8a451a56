"""From a configuration to the parts of a daemon: bundles read and verified, workers and streams made, none started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from delegates import registry
from delegates.base import Delegate
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
from edged.streams import Stream
from edged.trial import Trials
from edged.worker import Worker, WorkerPlan


@dataclass(frozen=True)
class Parts:
    """What the daemon runs: workers by model name, the streams that feed them, and the trials that may be under way."""

    workers: Mapping[str, Worker]
    streams: tuple[Stream, ...]
    trials: Trials


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


def assemble(
    config: Config, router: Router, sweeper: Sweeper, publish: Publish, on_state: Callable[[Worker], None]
) -> Parts:
    """Make the workers and streams of `config`. Raises an EdgedError for what can be told before anything runs."""
    bundles, trials = read_bundles(config), Trials(config.state_dir)
    for model in config.models:
        if bundles[model.name].manifest.stateful:
            # One interpreter for all would mix what its callers said before.
            raise ConfigError(f"models.{model.name}", "stateful models are not supported yet", str(model.bundle))
    workers = {}
    for model in config.models:
        engine = _opener(model, bundles[model.name], trials)
        policy = ThreadPolicy(model.cpus, model.realtime)
        plan = WorkerPlan(model.name, bundles[model.name], engine, policy, model.warmup)
        bounds = Bounds(model.queue.max_requests, model.queue.max_bytes, model.queue.overflow)
        admission = Admission(bounds, sweeper, router.fail)
        workers[model.name] = Worker(plan, admission, ModelFigures(), on_state)
    return Parts(workers, _streams(config, bundles, router, publish), trials)


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


def _opener(model: ModelConfig, loaded: Bundle, trials: Trials) -> Callable[[], Engine]:
    """Return what the worker calls on its own thread; what it needs is checked here, what it costs is paid there."""
    delegate = choose_delegate(model)
    runtimes = candidates(model)

    def open_engine() -> Engine:
        from edged.engines.tflite import TfliteEngine  # noqa: PLC0415  # with the runtime, off the main thread

        runtime = trials.choose(loaded, runtimes, delegate.name, model.threads)
        return TfliteEngine(loaded, runtime, delegate, model.threads)

    return open_engine


def candidates(model: ModelConfig) -> tuple[Runtime, ...]:
    """Return the runtimes that may serve the model: the one named, or every installed one."""
    if model.runtime == "auto":
        return tflite_runtime.installed()
    return (tflite_runtime.by_name(model.runtime),)


def choose_delegate(model: ModelConfig) -> Delegate:
    """Return the first delegate of the model's list that is available here; `auto` is the CPU.

    Raises ConfigError for a name that is not known or when none of the list can serve, with each one's reason.
    """
    where = f"models.{model.name}.delegates"
    reasons = []
    for name in ("cpu",) if model.delegates == "auto" else model.delegates:
        try:
            delegate = registry.create(name)
        except KeyError as exc:
            raise ConfigError(where, str(exc.args[0])) from exc
        probe = delegate.probe()
        if probe.available:
            return delegate
        reasons.append(f"{name}: {probe.reason}")
    raise ConfigError(where, "none can serve here", "; ".join(reasons))
