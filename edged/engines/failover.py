"""The engine that goes on answering when its accelerator does not.

Rules it keeps:
- While the delegate (the primary) serves, its arrays are the engine's, so that nothing is copied. The CPU stand-in is
  open and warm beside it.
- An inference that raises, hangs, kills its process or answers NaN is run again on the stand-in, and that is the
  answer. Only when the stand-in can do no better is the request itself to blame, and the delegate is kept.
- A delegate that failed is left at once. It is closed, opened again and probed by another thread (`failover_probe`),
  and serves again from the next `idle` on; unless it is judged there and lost, which `info` tells.
- Golden samples that the delegate does not reproduce, at the start or at an `idle`, are a failure like any other. A
  bundle that brings none is judged by what the stand-in answered to random inputs.
- `info` tells who answered the last call, and changes on the worker's thread alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence

import numpy as np

from edged.bundle import Bundle
from edged.clock import NS_PER_S, now_ns
from edged.config import FailoverConfig
from edged.engines.base import CLOSING_S, Array, Engine, EngineInfo, EngineLostError, GuardedEngine
from edged.engines.failover_checks import Examiner, Finite, HangLimit
from edged.engines.failover_probe import STOP_S, Reprobe, Told
from edged.engines.tflite_words import told
from edged.errors import Code, InternalError, RequestError

log = logging.getLogger(__name__)

# What one has to wait who asks a model that nothing can serve now.
RETRY_MS = 1000
# Inferences that make a stand-in without golden samples warm.
WARM = 3
WARM_NS = 60 * NS_PER_S


class NoStandIn:
    """What stands in where nothing can, for a model compiled for an accelerator without a twin: it refuses."""

    def __init__(self, bundle: Bundle) -> None:
        manifest = bundle.manifest
        self.info = EngineInfo("none", "nothing", 0)
        self.inputs: Sequence[Array] = [np.zeros(spec.shape, spec.wire_dtype) for spec in manifest.inputs]
        self.outputs: Sequence[Array] = [np.zeros(spec.shape, spec.wire_dtype) for spec in manifest.outputs]

    def invoke(self) -> None:
        """Raise RequestError."""
        raise RequestError(Code.UNAVAILABLE, "the delegate failed, and the bundle has no model for the CPU", RETRY_MS)

    def idle(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class FailoverEngine:
    """A delegate with the CPU standing in for it. Made, used and closed on the worker's thread.

    primary: None where it could not be opened, and then `why` says so: it is probed like one that failed.
    stand_in: None where no CPU model is there; requests are then refused UNAVAILABLE while the delegate is away.
    reopen: opens the delegate in a new process; called on another thread, and never again once it raised SettledError.
    rules: see FailoverConfig. on_change: called on another thread when `idle` should be called soon. name: of the
    delegate; it is put before `why`, and before what it fails with.
    p99_us, first_ms: of the delegate as measured before, until it has its own.

    Raises InternalError when the stand-in does not reproduce the golden samples; both engines are closed then.
    """

    def __init__(
        self,
        primary: GuardedEngine | None,
        stand_in: Engine | None,
        reopen: Callable[[], GuardedEngine],
        bundle: Bundle,
        rules: FailoverConfig,
        on_change: Callable[[], None],
        name: str,
        why: str = "",
        *,
        p99_us: float | None = None,
        first_ms: float | None = None,
    ) -> None:
        self._primary, self._stand_in, self._name = primary, stand_in or NoStandIn(bundle), name
        self._finite = Finite(bundle.manifest.outputs)
        self._limit = HangLimit(rules.hang_factor, rules.hang_floor_ms, p99_us, first_ms)
        self._examiner = Examiner(bundle, self._limit)
        self._reprobe = Reprobe(reopen, self._probe, rules, on_change)
        self._probes, self.recheck_s = rules.probes, rules.recheck_s
        self._failovers = self._returns = 0
        self._model = bundle.manifest.name
        self._why, self._told = why or "could not be opened", Told()
        self._warm_ns = now_ns()
        self._serve(primary or self._stand_in)
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            if stand_in is not None:
                self._warm_up(stand_in, bundle)
            self._begin()
            undo.pop_all()

    @property
    def limit_ns(self) -> int:
        """An inference of the delegate that takes longer is ended, and the stand-in answers; 0 while it is away."""
        return 0 if self._primary is None else self._limit.ns

    @property
    def pid(self) -> int | None:
        """The process of the delegate; None while it is away. Any thread."""
        primary = self._primary
        return None if primary is None else primary.pid

    @property
    def closing_s(self) -> float:
        """How long `close` may take."""
        return CLOSING_S + STOP_S

    def ended(self) -> bool:
        """Whether the delegate's process ended, or could not be probed yet, which `idle` looks after. Any thread."""
        primary = self._primary
        return self._reprobe.due() if primary is None else primary.ended()

    def invoke(self) -> None:
        """Answer, on the delegate or on the stand-in.

        Raises RuntimeError when neither can run this request, RequestError when the delegate is away and nothing
        stands in.
        """
        primary = self._primary
        if primary is None:
            self._stand_in.invoke()
            return
        primary.limit_ns, started_ns = self._limit.ns, now_ns()
        try:
            primary.invoke()
        except RuntimeError as exc:
            self._instead(primary, exc)
            return
        self._limit.record(now_ns() - started_ns)
        self.inputs, self.outputs = primary.inputs, primary.outputs
        if not self._finite.holds(primary.outputs):
            self._doubt(primary)

    def idle(self) -> None:
        """Take the delegate back if it is ready; else run one golden sample on it, or keep the stand-in warm."""
        if self._news():
            return
        primary = self._primary
        if primary is None:
            self._stand_in.idle()
            return
        primary.limit_ns = self._limit.ns
        try:
            self._examiner.one(primary)
        except RuntimeError as exc:
            self._leave(primary, exc)
        if now_ns() - self._warm_ns > WARM_NS:
            self._stand_in.idle()
            self._warm_ns = now_ns()

    def close(self) -> None:
        """End the probing, the delegate's process and the stand-in."""
        self._reprobe.stop()
        primary, self._primary = self._primary, None
        if primary is not None:
            primary.close()
        self._stand_in.close()
        self.inputs = self.outputs = ()

    # --- at the start -------------------------------------------------------------------------------------------------

    def _warm_up(self, stand_in: Engine, bundle: Bundle) -> None:
        """Run the stand-in until it is warm: it must answer the first request after a failure as it will any other."""
        try:
            golden = self._examiner.samples
            self._examiner.learn(stand_in)
            for _ in range(golden or WARM):
                self._examiner.one(stand_in)
        except RuntimeError as exc:
            raise InternalError(str(bundle.path), f"{stand_in.info.delegate} cannot stand in: {exc}") from exc

    def _begin(self) -> None:
        if self._primary is None:
            self._reprobe.begin(None, self._why)
            self._tell()
            return
        try:
            self._examiner.admit(self._primary, self._examiner.samples or 1)
        except RuntimeError as exc:
            self._leave(self._primary, exc)

    def _probe(self, engine: GuardedEngine) -> None:
        self._examiner.admit(engine, self._probes)

    # --- failures -----------------------------------------------------------------------------------------------------

    def _instead(self, primary: GuardedEngine, error: RuntimeError) -> None:
        """Answer on the stand-in what the delegate raised `error` for."""
        lost = isinstance(error, EngineLostError)
        if not lost and self._is_sound_alone(primary):
            raise error
        try:
            self._answer(primary)
        except RuntimeError:
            if lost:
                self._leave(primary, error)
            raise
        except RequestError:
            self._leave(primary, error)
            raise
        self._leave(primary, error)

    def _doubt(self, primary: GuardedEngine) -> None:
        """The delegate's answer is not finite: it failed, unless the stand-in's is not either."""
        kept = [output.copy() for output in primary.outputs]
        if self._is_sound_alone(primary):
            for output, value in zip(primary.outputs, kept, strict=True):
                np.copyto(output, value)
            return
        try:
            self._answer(primary)
        except RequestError:
            self._leave(primary, RuntimeError("its answers are not finite"))
            raise
        reason = self._finite.blame(kept, self._stand_in.outputs)
        if reason:
            self._leave(primary, RuntimeError(reason))

    def _answer(self, primary: GuardedEngine) -> None:
        for own, other in zip(self._stand_in.inputs, primary.inputs, strict=True):
            np.copyto(own, other)
        self._stand_in.invoke()
        self._warm_ns = now_ns()

    def _is_sound_alone(self, primary: GuardedEngine) -> bool:
        """Whether, with nothing to compare with, a golden sample says that the request is to blame."""
        if not isinstance(self._stand_in, NoStandIn) or not self._examiner.samples:
            return False
        with contextlib.suppress(RuntimeError):
            self._examiner.one(primary)
            return True
        return False

    def _leave(self, primary: GuardedEngine, error: RuntimeError) -> None:
        self._why = told(error)
        self._primary = None
        self._failovers += 1
        self._serve(self._stand_in)
        self._reprobe.begin(primary, self._why)
        self._tell()

    # --- and back -----------------------------------------------------------------------------------------------------

    def _news(self) -> bool:
        """Take over what the probing has to say; returns whether it had anything."""
        if self._primary is not None:
            return False
        if (good := self._reprobe.take()) is not None:
            self._primary = good
            self._returns += 1
            self._serve(good)
            return True
        if self._reprobe.due():
            self._reprobe.start()
        if self._reprobe.told is self._told:
            return False
        self._tell()
        return True

    def _serve(self, engine: Engine) -> None:
        self.inputs, self.outputs = engine.inputs, engine.outputs
        self.info = dataclasses.replace(engine.info, failovers=self._failovers, returns=self._returns)

    def _tell(self) -> None:
        news = self._told = self._reprobe.told
        serves = f"{self._stand_in.info.delegate} serves"
        if news.rightful:
            log.info("model %s: %s: %s; %s", self._model, self._name, news.text, serves)
        degraded = "" if news.rightful else f"{self._name}: {self._why}; {serves}; {news.text}"
        self.info = dataclasses.replace(self.info, degraded=degraded)
