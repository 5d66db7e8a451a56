"""The daemon: wires the rooms together, watches them, and stops them in order.

The main thread only waits and reports. Stop order, fixed: refuse new requests → answer what was admitted, up to
`drain_timeout_s` → answer the rest UNAVAILABLE → end the workers, each with its engine and that one's process, and the
sweeper → publish `stopped` → disconnect.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import select
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from edged import config as configuration
from edged import sdnotify, topics
from edged.admission import Sweeper
from edged.affinity import raise_priority
from edged.announcer import Announcer
from edged.assembly import assemble
from edged.clock import NS_PER_S, now_ns
from edged.config import Config
from edged.contract import DeviceState
from edged.errors import Code, ConfigError, RequestError
from edged.filters import matches
from edged.intake import Intake
from edged.memory import return_memory
from edged.replies import ReplyMemory
from edged.report import Hang, Identity, Report
from edged.request import OnSent
from edged.router import Router
from edged.transports.base import Message, Subscription, Transport
from edged.worker import ModelState, Worker

if TYPE_CHECKING:
    from edged.keepwarm import KeepWarm

log = logging.getLogger(__name__)

TICK_S = 0.5
STOP_S = 2.0  # for a worker to end, beside what its engine may take to close
# The sections of the configuration that SIGHUP applies to the running daemon.
LIVE = ("metrics", "log_level", "drain_timeout_s")


def own_filters(config: Config) -> tuple[str, str]:
    """Return what a device subscribes to beside its streams: its requests, and its own status."""
    return topics.request_filter(config.device), topics.device(config.device, "status")


class Daemon:
    """One device. `reload` reads the configuration again, for SIGHUP.

    `run` blocks until `request_stop`, which like `request_reload` may come from a signal handler.

    Raises an EdgedError from the constructor for whatever is wrong with the configuration or the bundles.
    """

    def __init__(self, config: Config, transport: Transport, reload: Callable[[], Config] | None = None) -> None:
        self._config, self._transport, self._read_again = config, transport, reload
        self._identity = Identity(config.device, uuid.uuid4().hex)
        self._requests_prefix = topics.device(config.device, "req", "")
        self._router = Router()
        self._sweeper = Sweeper(self._router.fail)
        memory = ReplyMemory(config.replies.memory_bytes, config.replies.memory_s)
        deadlines = {model.name: model.deadline_ms for model in config.models}
        default = min(deadlines.values(), default=1000)
        self._intake = Intake(self._router.submit, self._send, memory, lambda name: deadlines.get(name, default))
        self._parts = assemble(config, self._router, self._sweeper, self._send, lambda _: self._wake())
        self._router.serve(self._parts.workers)
        hang = Hang(config.status.stuck_factor, config.status.stuck_floor_ms)
        self._report = Report(self._identity, hang, self._transport_facts, self._stream_facts)
        self._report.watch(self._parts.workers)
        self._announcer = Announcer(config.device, self._report, self._send, self._status_facts)
        self._keep_warm: KeepWarm | None = None
        self._unrouted = 0
        self._network_scheduling = ""
        self._stopping = self._reloading = self._announced = False
        self._asked_for = self._said_to_manager = ""
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def request_stop(self) -> None:
        """Begin an orderly stop."""
        self._stopping = True
        self._wake()

    def request_reload(self) -> None:
        """Read the configuration again and say what changed."""
        self._reloading = True
        self._wake()

    def run(self) -> bool:
        """Serve until asked to stop; returns whether everything ended in order (False: an invoke hangs)."""
        self._sweeper.start()
        self._transport.start(
            self._on_message, self._subscriptions(), will=self._announcer.will(), on_connection=self._on_connection
        )
        for worker in self._parts.workers.values():
            worker.start()
        try:
            self._watch()
        finally:
            ended = self._stop()
        return ended

    def _watch(self) -> None:
        interval_ns = int(self._config.metrics.interval_s * NS_PER_S)
        next_metrics = now_ns() + interval_ns
        notifier = sdnotify.Notifier()
        while not self._stopping:
            self._wait(min(TICK_S, max(0.0, (next_metrics - now_ns()) / NS_PER_S)))
            state, reason = self._report.state()
            self._tell_service_manager(notifier, state, reason)
            self._start_keep_warm()
            if self._reloading:
                self._reload(notifier)
                interval_ns = int(self._config.metrics.interval_s * NS_PER_S)
            due = now_ns() >= next_metrics
            if due:
                next_metrics = now_ns() + interval_ns
                self._announcer.metrics()
            self._announcer.status(state, reason, always=due)
        notifier.stopping(DeviceState.DRAINING.value)

    def _tell_service_manager(self, notifier: sdnotify.Notifier, state: DeviceState, reason: str) -> None:
        if state is DeviceState.STARTING and reason not in ("", self._asked_for):
            self._asked_for = reason
            notifier.extend(self._config.selection.total_s + self._config.selection.candidate_s)
        text = f"{state.value} {reason}".rstrip()
        if not self._announced and state is not DeviceState.STARTING:
            self._announced = notifier.ready(text) or not notifier.enabled
            self._said_to_manager = text
            if self._announced:
                return_memory()
        elif text != self._said_to_manager and notifier.status(text):
            self._said_to_manager = text
        # A hung invoke is what a watchdog is for: silence lets the service manager restart the daemon.
        if notifier.watchdog_s is not None and state is not DeviceState.STUCK:
            notifier.watchdog()

    def _start_keep_warm(self) -> None:
        """Start the thread for idle models once one is ready that wants it, or whose process must be looked at."""
        idle_ms = {model.name: model.keep_warm_ms for model in self._config.models}
        ready = [(name, worker) for name, worker in self._parts.workers.items() if worker.state is ModelState.READY]
        wanted = (idle_ms[name] or worker.self_checked is not None for name, worker in ready)
        if self._keep_warm is None and any(wanted):
            from edged.keepwarm import KeepWarm  # noqa: PLC0415  # most daemons need no such thread

            self._keep_warm = KeepWarm(self._parts.workers, idle_ms)
            self._keep_warm.start()

    def _stop(self) -> bool:
        log.info("stopping: answering what was admitted")
        self._router.drain()
        if self._keep_warm is not None:
            self._keep_warm.stop()
        self._parts.selector.stop()
        self._announcer.status(DeviceState.DRAINING, "", always=True)
        workers = self._parts.workers.values()
        end_ns = now_ns() + int(self._config.drain_timeout_s * NS_PER_S)
        while any(worker.admission.requests for worker in workers) and now_ns() < end_ns:
            time.sleep(0.005)
        for worker in workers:
            self._abandon(worker)
        ended = self._ended()
        self._sweeper.stop()
        self._announcer.status(DeviceState.STOPPED, "", always=True)
        self._transport.stop(STOP_S)
        return ended

    def _ended(self) -> bool:
        """End the workers, all at once; returns whether they ended. One that is still being opened owes no answer."""
        started_ns, ended = now_ns(), True
        for worker in self._parts.workers.values():
            left_s = STOP_S + worker.closing_s - (now_ns() - started_ns) / NS_PER_S
            ended &= worker.stop(max(0.0, left_s)) or worker.state is ModelState.STARTING
        return ended

    def _abandon(self, worker: Worker) -> None:
        error = RequestError(Code.UNAVAILABLE, "the device shut down before this request's turn")
        worker.admission.abandon(error)
        if (current := worker.current) is not None:
            self._router.fail(current, error)

    def _reload(self, notifier: sdnotify.Notifier) -> None:
        self._reloading = False
        if self._read_again is None:
            return
        notifier.reloading()
        try:
            new = self._read_again()
        except ConfigError as exc:
            log.error("configuration not taken, the old one stays:\n%s", exc)  # noqa: TRY400  # no traceback for a typo
        else:
            self._take(new)
        notifier.ready()

    def _take(self, new: Config) -> None:
        """Say what changed; what can change while running does, the rest waits for a restart."""
        for line in configuration.diff(self._config, new) or ["nothing changed"]:
            when = "" if line.startswith((*LIVE, "nothing")) else " (takes effect at the next start)"
            log.info("configuration: %s%s", line, when)
        self._config = dataclasses.replace(self._config, **{name: getattr(new, name) for name in LIVE})
        logging.getLogger().setLevel(self._config.log_level.upper())

    # --- the network thread -------------------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        if message.topic.startswith(self._requests_prefix):
            self._intake.on_message(message)
        elif message.topic == self._announcer.status_topic:
            self._announcer.heard(message)
        else:
            fed = [s for s in self._parts.streams if matches(s.subscription.filter, message.topic)]
            for stream in fed:
                stream.on_message(message)
            # The session may still hold a subscription of a configuration that was changed since.
            self._unrouted += not fed

    def _on_connection(self, connected: bool, _detail: str) -> None:
        if connected:
            # Under load an unprivileged network thread holds back every reply, however urgent the pinned one is.
            ordinary = all(model.realtime == "off" for model in self._config.models)
            self._network_scheduling = raise_priority("off" if ordinary else "auto")
            self._announcer.repeat()
        self._wake()

    # --- messages out -------------------------------------------------------------------------------------------------

    def _send(self, message: Message, on_sent: OnSent | None = None) -> bool:
        return self._transport.publish(message, on_sent)

    def _subscriptions(self) -> list[Subscription]:
        streams = [Subscription(stream.topic, stream.qos) for stream in self._config.streams]
        own = [Subscription(name, 1) for name in own_filters(self._config)]
        return [*own, *streams]

    def _status_facts(self) -> dict[str, object]:
        return {"network_scheduling": self._network_scheduling}

    # --- odds and ends ------------------------------------------------------------------------------------------------

    def _transport_facts(self) -> dict[str, object]:
        own = {"unrouted": self._unrouted, "unknown_model": self._router.unknown.counts().requests}
        return {"name": self._transport.name, **self._transport.stats(), **own, "intake": dict(self._intake.counters)}

    def _stream_facts(self) -> dict[str, object]:
        return {stream.config.name: stream.stats() for stream in self._parts.streams}

    def _wait(self, timeout_s: float) -> None:
        if select.select([self._wake_read], [], [], timeout_s)[0]:
            os.read(self._wake_read, 4096)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # the pipe is full of wake-ups already
            os.write(self._wake_write, b"x")
