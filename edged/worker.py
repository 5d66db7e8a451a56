"""The pinned loop of one model: take a request, decode into the tensor, invoke, encode, answer.

How requests become inferences is a `Server`'s matter: one by one, several in one, or each on the state of its key.
The thread sets its own affinity and priority first, then opens the engine, checks the golden samples and warms up:
helper threads of the runtime inherit what the opening thread has. Only then is the model ready.
A request that fails costs one error reply; a model that fails to open is `failed` with the reason, and the router
answers for it. An engine may hand over to another one at any call: its `info` then is a new one, each reply names the
delegate that served it, and `on_state` is called.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol

from edged import codecs
from edged.admission import Admission
from edged.affinity import ThreadPolicy
from edged.answering import Answering
from edged.bundle import Bundle, Signature
from edged.clock import now_ns
from edged.engines import golden
from edged.engines.base import PROBED, Engine, EngineInfo, SelfChecked
from edged.errors import Code, EdgedError, RequestError
from edged.figures import ModelFigures
from edged.request import Reply, Request

log = logging.getLogger(__name__)


class ModelState(str, Enum):
    """Where a model is on its way."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


class Server(Protocol):
    """How requests become inferences. Made and used on the worker's thread; any thread may ask the rest.

    serve: takes a request, and perhaps others that wait, and sees that each is answered. reset: drops the state of a
    key and of all below it, of every key where it is None, and tells of how many. facts: what metrics and status tell.
    """

    def serve(self, request: Request) -> object: ...  # noqa: D102  # see the class
    def reset(self, key: str | None) -> int: ...  # noqa: D102
    def facts(self) -> Mapping[str, object]: ...  # noqa: D102


class OneByOne:
    """A request, an inference, an answer; no state."""

    def __init__(self, worker: Worker, engine: Engine) -> None:
        self.serve: Callable[[Request], object] = partial(worker.serve, engine)

    def reset(self, key: str | None) -> int:  # noqa: ARG002  # the protocol's
        """There is nothing to drop."""
        return 0

    def facts(self) -> Mapping[str, object]:
        """There is nothing to tell."""
        return {}


# Called with `nudge`, which any thread may call to have `idle` run soon, and with `note`, which tells what the opening
# is at. Raises an EdgedError or what a runtime raises.
Opener = Callable[[Callable[[], None], Callable[[str], None]], Engine]


def _at_once() -> None:
    """What a worker waits for that nobody served before."""


@dataclass(frozen=True)
class WorkerPlan:
    """What to run: `open_engine` is called on the pinned thread, `warmup` invokes follow the golden check.

    server: made then, with the worker and the engine; what it raises fails the model. signature: of one request, where
    it is not the bundle's own. begin: called once when all is ready, before the first request is taken.
    """

    name: str
    bundle: Bundle
    open_engine: Opener
    policy: ThreadPolicy = field(default_factory=ThreadPolicy)
    warmup: int = 10
    server: Callable[[Worker, Engine], Server] = OneByOne
    signature: Signature | None = None
    begin: Callable[[], None] = _at_once

    @property
    def wire(self) -> Signature:
        """The signature of one request."""
        return self.signature or self.bundle.signature


class Worker:
    """One model's thread. `on_state` is called on that thread after each change of `state`, `reason` or `info`."""

    def __init__(
        self, plan: WorkerPlan, admission: Admission, figures: ModelFigures, on_state: Callable[[Worker], None]
    ) -> None:
        self.plan, self.admission, self.figures, self._on_state = plan, admission, figures, on_state
        self.state, self.reason = ModelState.STARTING, ""
        self.info: EngineInfo | None = None
        self.scheduling = ""
        self.warmup_us: list[int] = []
        self.current: Sequence[Request] = ()  # in service
        self.busy_since_ns = 0  # 0 while idle
        self.last_done_ns = 0  # 0 before the first inference
        self.last_idle_ns = 0  # of the last inference for nothing, at first of the warm-up
        self.self_checked: SelfChecked | None = None
        self.server: Server | None = None
        self.answering = Answering(plan.name, plan.wire, figures)
        self._stopping = False
        self._before: Worker | None = None
        self._thread = threading.Thread(target=self._run, name=f"edged-{plan.name}"[:15], daemon=True)

    @property
    def closing_s(self) -> float:
        """How long its engine may take to close, after the inference at hand; 0 for one in this process."""
        return 0.0 if self.self_checked is None else self.self_checked.closing_s

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Let the worker finish what is queued and end; False when it is still busy after the time."""
        self._stopping = True
        self.admission.close(RequestError(Code.UNAVAILABLE, "the model is being stopped"))
        self._thread.join(timeout_s)
        return self.ended

    @property
    def ended(self) -> bool:
        """Whether its thread has ended."""
        return not self._thread.is_alive()

    def follow(self, old: Worker | None) -> None:
        """Take the place of `old`, which may have to answer still; None once it has ended."""
        self._before = old

    @property
    def before(self) -> Worker | None:
        """The one whose place it took, until that has ended."""
        old = self._before
        if old is not None and old.ended:
            self._before = None  # with the memory it holds
            return None
        return old

    @property
    def open(self) -> Sequence[Worker]:
        """This one, and the one before where that has not ended."""
        old = self.before
        return (self,) if old is None else (self, old)

    @property
    def unanswered(self) -> int:
        """How many admitted requests of the model wait for their answer, those of the one before included."""
        return sum(worker.admission.requests for worker in self.open)

    @property
    def unanswered_bytes(self) -> int:
        """The bytes of their payloads."""
        return sum(worker.admission.bytes for worker in self.open)

    def reset(self, key: str | None) -> int:
        """Let the state of `key` and of all keys below it begin anew, of every key where it is None; any thread.

        Returns how many states were dropped. It holds from the next inference on, for what waits in the queue too.
        """
        return 0 if self.server is None else self.server.reset(key)

    def facts(self) -> Mapping[str, object]:
        """What its server tells in status and metrics."""
        return {} if self.server is None else self.server.facts()

    def _run(self) -> None:
        try:
            self.scheduling = self.plan.policy.apply()
            with contextlib.closing(self.plan.open_engine(self.admission.nudge, self._note)) as engine:
                self._prepare(engine)
                self.server = self.plan.server(self, engine)
                self._enter(ModelState.READY)
                self.plan.begin()
                idle, serve = partial(self._idle, engine), self.server.serve
                while (request := self.admission.take(idle)) is not None:
                    serve(request)
            self._enter(ModelState.STOPPED)
        except Exception as exc:  # top of the thread: whatever a runtime raises, or a reply, becomes `failed`
            log.debug("model %s", self.plan.name, exc_info=True)
            self._enter(ModelState.FAILED, str(exc) or type(exc).__name__)
            self.admission.abandon(RequestError(Code.UNAVAILABLE, f"the model failed: {self.reason}"))

    def _note(self, text: str) -> None:
        self.reason = text
        self._on_state(self)

    def _prepare(self, engine: Engine) -> None:
        if isinstance(engine, SelfChecked):
            self.self_checked = engine
        else:
            self._check(engine)
        with contextlib.suppress(RequestError):  # nothing serves yet: its info says why
            self._warm_up(engine)
        codecs.preload(self.answering.signature)
        self.last_idle_ns = now_ns()
        self._know(engine)

    def _check(self, engine: Engine) -> None:
        samples = self.plan.bundle.golden()
        if samples is None:
            log.warning("model %s has no golden samples: its answers were not checked", self.plan.name)
        elif (wrong := golden.disagreement(engine, self.plan.bundle, samples)) is not None:
            raise EdgedError(self.plan.name, f"does not reproduce its golden samples on {engine.info.runtime}", wrong)

    def _warm_up(self, engine: Engine) -> None:
        for _ in range(self.plan.warmup):
            if self._stopping:
                break
            started = now_ns()
            engine.invoke()
            self.warmup_us.append((now_ns() - started) // 1000)

    def _know(self, engine: Engine) -> None:
        self.info = engine.info
        self.answering.tell(self.plan.bundle.manifest.version, engine.info.delegate)

    def _changed(self, engine: Engine) -> None:
        """Another one serves now, or there is news of the one that does not."""
        self._know(engine)
        if engine.info.degraded:
            level = logging.DEBUG if engine.info.degraded.endswith(PROBED) else logging.WARNING
            log.log(level, "model %s: %s", self.plan.name, engine.info.degraded)
        else:
            log.info("model %s: %s serves", self.plan.name, engine.info.delegate)
        self._on_state(self)

    def _enter(self, state: ModelState, reason: str = "") -> None:
        self.state, self.reason = state, reason
        self._log()
        self._on_state(self)

    def _log(self) -> None:
        if self.state is ModelState.FAILED:
            log.error("model %s: failed: %s", self.plan.name, self.reason)
        elif self.info is not None:
            about = f"version {self.plan.bundle.manifest.version} on {self.info.runtime}, {self.info.delegate}"
            scheduling = self.info.scheduling or self.scheduling
            log.info("model %s: %s (%s, %s)", self.plan.name, self.state.value, about, scheduling)
            if self.info.degraded and self.state is ModelState.READY:
                log.warning("model %s: %s", self.plan.name, self.info.degraded)

    def serve(self, engine: Engine, request: Request) -> bool:
        """Run one request on what `engine` holds now, and answer it; returns whether nobody had before."""
        self.current = (request,)
        request.started_ns = self.busy_since_ns = now_ns()
        try:
            reply = self._infer(request, engine)
        except Exception as exc:  # noqa: BLE001  # top of a request: the worker must take the next one; it is logged
            reply = self.answering.failure(exc)
        self.busy_since_ns, self.current = 0, ()
        return self.answering.deliver(request, reply)

    def _idle(self, engine: Engine) -> None:
        self.busy_since_ns = now_ns()
        try:
            self.call(engine.idle, engine)
        except Exception:  # as the top of a request: nobody waits for this one
            log.exception("model %s: an inference for nothing failed", self.plan.name)
        self.busy_since_ns, self.last_idle_ns = 0, now_ns()

    def call(self, what: Callable[[], None], engine: Engine) -> None:
        """Call a method of the engine, and notice when another delegate serves afterwards."""
        try:
            what()
        finally:
            if engine.info is not self.info:
                self._changed(engine)

    def _infer(self, request: Request, engine: Engine) -> Reply:
        form = self.answering.decode(request, engine.inputs)
        request.decoded_ns = now_ns()
        self.call(engine.invoke, engine)
        request.inferred_ns = self.last_done_ns = now_ns()
        return self.answering.encode(request, form, engine.outputs)
