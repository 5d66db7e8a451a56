"""The pinned loop of one model: take a request, decode into the tensor, invoke, encode, answer.

The thread sets its own affinity and priority first, then opens the engine, checks the golden samples and warms up:
helper threads of the runtime inherit what the opening thread has. Only then is the model ready.
A request that fails costs one error reply; a model that fails to open is `failed` with the reason, and the router
answers for it. An engine may hand over to another one at any call: its `info` then is a new one, each reply names the
delegate that served it, and `on_state` is called.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Protocol, runtime_checkable

from edged import codecs, postprocess
from edged.admission import Admission
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.clock import now_ns
from edged.engines import golden
from edged.engines.base import PROBED, Engine, EngineInfo
from edged.errors import Code, EdgedError, RequestError
from edged.figures import ModelFigures
from edged.meta import Meta, OutputMeta, format_meta
from edged.request import OnSent, Reply, Request

log = logging.getLogger(__name__)

MAX_META = 32_768


class ModelState(str, Enum):
    """Where a model is on its way."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    STOPPED = "stopped"


@runtime_checkable
class SelfChecked(Protocol):
    """An engine that checked its golden samples when it was made, and that ends a hang by itself.

    limit_ns: an inference that takes longer is ended, 0 when nothing is. pid: of the process that serves, None for this
    one. recheck_s: seconds after which `idle` wants to be called, 0 for never. closing_s: how long `close` may take.
    ended: whether that process ended, or something else came up that `idle` looks after. Any thread may ask all of it.
    """

    @property
    def limit_ns(self) -> int: ...  # noqa: D102  # see the class
    @property
    def pid(self) -> int | None: ...  # noqa: D102
    @property
    def recheck_s(self) -> float: ...  # noqa: D102
    @property
    def closing_s(self) -> float: ...  # noqa: D102
    def ended(self) -> bool: ...  # noqa: D102


# Called with `nudge`, which any thread may call to have `idle` run soon, and with `note`, which tells what the opening
# is at. Raises an EdgedError or what a runtime raises.
Opener = Callable[[Callable[[], None], Callable[[str], None]], Engine]


@dataclass(frozen=True)
class WorkerPlan:
    """What to run: `open_engine` is called on the pinned thread, `warmup` invokes follow the golden check."""

    name: str
    bundle: Bundle
    open_engine: Opener
    policy: ThreadPolicy = field(default_factory=ThreadPolicy)
    warmup: int = 10


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
        self.current: Request | None = None
        self.busy_since_ns = 0  # 0 while idle
        self.last_done_ns = 0  # 0 before the first inference
        self.last_idle_ns = 0  # of the last inference for nothing, at first of the warm-up
        self.self_checked: SelfChecked | None = None
        self._stopping = False
        self._signature = plan.bundle.signature
        self._meta = ""
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
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.scheduling = self.plan.policy.apply()
            with contextlib.closing(self.plan.open_engine(self.admission.nudge, self._note)) as engine:
                self._prepare(engine)
                self._enter(ModelState.READY)
                idle = partial(self._idle, engine)
                while (request := self.admission.take(idle)) is not None:
                    self._serve(request, engine)
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
        codecs.preload(self._signature)
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
        self._meta = self._fixed_meta(engine)

    def _changed(self, engine: Engine) -> None:
        """Another one serves now, or there is news of the one that does not."""
        self._know(engine)
        if engine.info.degraded:
            level = logging.DEBUG if engine.info.degraded.endswith(PROBED) else logging.WARNING
            log.log(level, "model %s: %s", self.plan.name, engine.info.degraded)
        else:
            log.info("model %s: %s serves", self.plan.name, engine.info.delegate)
        self._on_state(self)

    def _fixed_meta(self, engine: Engine) -> str:
        manifest = self.plan.bundle.manifest
        outputs = tuple(OutputMeta(spec.name, spec.wire_dtype.name, spec.shape) for spec in manifest.outputs)
        meta = Meta(version=manifest.version, path="local", delegate=engine.info.delegate, outputs=outputs)
        told = format_meta(meta)
        # An MQTT string ends at 64 KiB: names that long are left out rather than every reply.
        return told if len(told) <= MAX_META else format_meta(dataclasses.replace(meta, outputs=()))

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

    def _serve(self, request: Request, engine: Engine) -> None:
        self.current = request
        request.started_ns = self.busy_since_ns = now_ns()
        try:
            reply = self._infer(request, engine)
        except RequestError as error:
            reply = Reply.failure(error, self._meta)
        except Exception as exc:  # top of a request: the worker must take the next one
            log.exception("model %s: request failed", self.plan.name)
            reply = Reply.failure(RequestError(Code.INTERNAL, str(exc) or type(exc).__name__), self._meta)
        self.busy_since_ns, self.current = 0, None
        try:
            answer(request, reply, self.figures)
        except Exception:  # top of a request: one reply that cannot be sent must not end the model
            log.exception("model %s: a reply could not be sent", self.plan.name)

    def _idle(self, engine: Engine) -> None:
        self.busy_since_ns = now_ns()
        try:
            self._call(engine.idle, engine)
        except Exception:  # as the top of a request: nobody waits for this one
            log.exception("model %s: an inference for nothing failed", self.plan.name)
        self.busy_since_ns, self.last_idle_ns = 0, now_ns()

    def _call(self, what: Callable[[], None], engine: Engine) -> None:
        try:
            what()
        finally:
            if engine.info is not self.info:
                self._changed(engine)

    def _infer(self, request: Request, engine: Engine) -> Reply:
        # The payload is taken once: whoever claims the request meanwhile drops its own reference.
        payload, decoder = request.payload, codecs.load(request.codec)
        encoder = codecs.load(request.reply_codec or decoder.reply_codec)
        hints = decoder.decode(payload, self._signature, engine.inputs)
        request.decoded_ns = now_ns()
        self._call(engine.invoke, engine)
        request.inferred_ns = self.last_done_ns = now_ns()
        outputs = postprocess.apply(engine.outputs, self._signature)
        encoded = encoder.encode(outputs, self._signature, _merge(request.annotations, hints))
        request.encoded_ns = now_ns()
        queue_us = (request.started_ns - request.admitted_ns) // 1000
        infer_us = (request.inferred_ns - request.decoded_ns) // 1000
        return Reply(encoded, encoder.content_type, f"{self._meta};q={queue_us};i={infer_us}")


def _merge(first: Mapping[str, object] | None, second: Mapping[str, object] | None) -> Mapping[str, object]:
    return {**(first or {}), **(second or {})}


def answer(request: Request, reply: Reply, figures: ModelFigures) -> bool:
    """Answer `request` if nobody has yet; returns whether this call did. Any thread."""
    if not request.claim():
        return False
    figures.answered(reply)
    request.respond(request, reply, _timer(request, reply, figures))
    return True


def _timer(request: Request, reply: Reply, figures: ModelFigures) -> OnSent | None:
    """Return who records the latency once the reply is out.

    A refusal is quick and would flatter the percentiles: nobody. A missed deadline is slow and must not be left out:
    the total alone, since the worker may still be writing the marks.
    """
    if reply.error is None:
        return partial(figures.sent, request)
    return partial(figures.missed, request) if reply.error.code is Code.DEADLINE_EXCEEDED else None
