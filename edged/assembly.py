"""From a configuration to the parts of a daemon: bundles read and verified, workers and streams made, none started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from edged import bundle
from edged.admission import Admission, Bounds, Fail, Sweeper
from edged.affinity import FOREMOST, ThreadPolicy
from edged.bundle import Bundle
from edged.config import Config, ModelConfig, StreamConfig
from edged.config_models import PRIORITIES
from edged.deployed import Deployed
from edged.engines import tflite_runtime
from edged.engines.base import Engine
from edged.engines.tflite_runtime import Runtime
from edged.errors import BadDataError, ConfigError
from edged.figures import ModelFigures
from edged.fitting import Fit, fit
from edged.intake import Publish
from edged.router import Router
from edged.selection import Selection, Selector, Wish
from edged.worker import Opener, Worker, WorkerPlan

if TYPE_CHECKING:
    from edged.streams import Stream

OnState = Callable[[Worker], None]


@dataclass(frozen=True)
class Parts:
    """What the daemon runs: workers by model name, the streams that feed them, and who chooses what serves.

    workers: one mapping for all rooms. A swap puts another worker under the name, which is one step for every reader.
    deployed: the bundles that serve in place of the configured ones.
    """

    workers: dict[str, Worker]
    streams: tuple[Stream, ...]
    selector: Selector
    deployed: Deployed
    beside: Beside


class Beside(Protocol):
    """Makes a worker that can take over from `old`, with its figures and as configured; not started.

    selection: what was chosen for the bundle. begin: see WorkerPlan. Raises an EdgedError for what cannot be served.
    """

    def __call__(  # noqa: D102  # see the class
        self, old: Worker, bundle: Bundle, selection: Selection, begin: Callable[[], None], on_state: OnState
    ) -> Worker: ...


def read_bundles(config: Config, kept: Mapping[str, Bundle] | None = None) -> dict[str, Bundle]:
    """Read and verify every model's bundle. Raises BadDataError naming all that are wrong.

    kept: by model, those that serve in place of the configured ones.
    """
    bundles = dict(kept or {})
    wrong: list[BadDataError] = []
    for model in config.models:
        if model.name in bundles:
            continue
        try:
            bundles[model.name] = bundle.read(model.bundle)
        except BadDataError as exc:
            wrong.append(exc)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise BadDataError(f"{len(wrong)} of {len(config.models)} bundles", "; ".join(map(str, wrong)))
    return bundles


def assemble(
    config: Config,
    router: Router,
    sweeper: Sweeper,
    publish: Publish,
    on_state: OnState,
    *,
    keep: Publish | None = None,
    boot: str = "",
    keeps: bool = True,
) -> Parts:
    """Make the workers and streams of `config`. Raises an EdgedError for what can be told before anything runs.

    publish: for answers of streams; keep: for those of streams with `store`. boot: see Stream.
    keeps: see Deployed.
    """
    deployed = Deployed(config.state_dir, config.device, keeps=keeps)
    bundles = read_bundles(config, deployed.bundles({model.name: model.bundle for model in config.models}))
    deployed.prune()
    selector = Selector(config.state_dir, config.selection.candidate_s, config.selection.total_s)
    making = _Making(config, selector, sweeper, router.fail)
    plans = {model.name: making.plan(model.name, bundles[model.name]) for model in config.models}
    workers = {name: making.worker(plan, ModelFigures(), on_state) for name, plan in plans.items()}
    stored = {stream.name: keep or publish for stream in config.streams if stream.store}
    streams = tuple(_stream(one, config, plans, router, stored.get(one.name, publish), boot) for one in config.streams)
    return Parts(workers, streams, selector, deployed, making.beside)


class _Making:
    """Makes the workers of a configuration, at the start and for a swap."""

    def __init__(self, config: Config, selector: Selector, sweeper: Sweeper, fail: Fail) -> None:
        self._models, self._selector = {model.name: model for model in config.models}, selector
        self._sweeper, self._fail = sweeper, fail

    def plan(self, name: str, loaded: Bundle, selection: Selection | None = None) -> WorkerPlan:
        model, models = self._models[name], tuple(self._models.values())
        thread, way = policy(model, models), fit(model, loaded)
        engine = _opener(model, loaded, self._selector, wish(model, loaded, models, way), way, selection)
        return WorkerPlan(name, loaded, engine, thread, model.warmup, way.server, way.signature)

    def worker(self, plan: WorkerPlan, figures: ModelFigures, on_state: OnState) -> Worker:
        queue = self._models[plan.name].queue
        bounds = Bounds(queue.max_requests, queue.max_bytes, queue.overflow)
        return Worker(plan, Admission(bounds, self._sweeper, self._fail), figures, on_state)

    def beside(
        self, old: Worker, bundle: Bundle, selection: Selection, begin: Callable[[], None], on_state: OnState
    ) -> Worker:
        """See Beside."""
        plan = self.plan(old.plan.name, bundle, selection)
        return self.worker(replace(plan, begin=begin), old.figures, on_state)


def _stream(
    stream: StreamConfig, config: Config, plans: Mapping[str, WorkerPlan], router: Router, publish: Publish, boot: str
) -> Stream:
    from edged.streams import Stream  # noqa: PLC0415  # many devices have none

    deadlines = {model.name: model.deadline_ms for model in config.models}
    signature = plans[stream.model].wire
    deadline_ms = stream.deadline_ms or deadlines[stream.model]
    try:
        return Stream(stream, signature, config.device, router.submit, publish, deadline_ms, boot)
    except ValueError as exc:
        raise ConfigError(f"streams.{stream.name}", str(exc)) from exc


def _opener(
    model: ModelConfig, loaded: Bundle, selector: Selector, wanted: Wish, way: Fit, selection: Selection | None
) -> Opener:
    """Return what the worker calls on its own thread. selection: what was chosen before, else it chooses."""

    def open_engine(nudge: Callable[[], None], note: Callable[[str], None]) -> Engine:
        from edged.selection.serving import Serving  # noqa: PLC0415  # with the runtime, off the main thread

        return Serving(
            selector, model.name, loaded, wanted, model.failover, nudge, note, selection, way.opened, way.arrange
        ).open()

    return open_engine


def wish(model: ModelConfig, loaded: Bundle, models: Sequence[ModelConfig] = (), way: Fit | None = None) -> Wish:
    """Return what may serve the bundle as the model is configured. way: of `fit`, where it is known.

    Raises UnavailableError as `runtimes`, ConfigError as `fit`.
    """
    wanted = (way or fit(model, loaded)).wanted
    return Wish(wanted, [one.name for one in runtimes(model)], model.threads, policy(model, models))


def policy(model: ModelConfig, models: Sequence[ModelConfig] = ()) -> ThreadPolicy:
    """Return where the model's thread runs, and before whom; `models` are those that it runs beside."""
    used = {other.priority for other in models}
    before = PRIORITIES[: PRIORITIES.index(model.priority)]
    return ThreadPolicy(model.cpus, model.realtime, sum(level in used for level in before))


def network_policy(config: Config) -> ThreadPolicy:
    """Return the policy of the network thread, and of others that all models wait for: behind none of the models."""
    modes = {model.realtime for model in config.models}
    mode = config.network.realtime
    if mode == "auto" and "fifo" in modes:
        mode = "fifo"  # a niced thread would wait for theirs
    elif mode == "auto" and modes == {"off"}:
        mode = "off"
    return ThreadPolicy(config.network.cpus, mode, FOREMOST)


def main_policy(config: Config) -> ThreadPolicy:
    """Return the policy of the main thread: it takes the interpreter's lock, and who has it must not wait for a CPU."""
    return ThreadPolicy(realtime="off" if network_policy(config).realtime == "off" else "nice")


def runtimes(model: ModelConfig) -> tuple[Runtime, ...]:
    """Return the runtimes that may serve the model: the one named, or every installed one.

    Raises UnavailableError when it is not installed, or none is.
    """
    if model.runtime == "auto":
        return tflite_runtime.installed()
    return (tflite_runtime.by_name(model.runtime),)
