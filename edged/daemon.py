"""The daemon: wires the rooms together, watches them, and stops them in order.

The main thread only waits and reports. Stop order, fixed: give up what an operator asked for → refuse new
requests → answer what was admitted, up to `drain_timeout_s` → answer the rest UNAVAILABLE → end the workers, each with
its engine and that one's process, and the sweeper → publish `stopped` → disconnect.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from edged import ending, live, topics
from edged.admission import Sweeper
from edged.announcer import Announcer
from edged.assembly import Parts, assemble, main_policy, network_policy
from edged.bell import Bell
from edged.clock import NS_PER_S, now_ns
from edged.collection import Collection
from edged.config import Config
from edged.contract import DeviceState
from edged.control.desk import Desk
from edged.errors import ConfigError
from edged.filters import matches
from edged.intake import Intake
from edged.memory import OwnMemory, share_heap
from edged.quota import Quota
from edged.replies import ReplyMemory
from edged.report import Hang, Identity, Report
from edged.request import OnSent
from edged.router import Router
from edged.storing import Storing
from edged.supervised import Supervised
from edged.transports.base import Connected, Message, Subscription, Transport
from edged.worker import ModelState

if TYPE_CHECKING:
    from edged.control.thread import Rooms
    from edged.keepwarm import KeepWarm
    from edged.local import LocalIntake
    from edged.prometheus import Endpoint

log = logging.getLogger(__name__)

TICK_S = 0.5
SOON_S = 0.05  # while a gap between requests is looked for


def own_filters(config: Config) -> tuple[str, ...]:
    """Return what a device subscribes to beside its streams: requests, commands, its own status, desired models."""
    own = (topics.device(config.device, "cmd", "+"), topics.device(config.device, "status"))
    desired = (topics.device(config.device, "desired", "models"),) if config.updates.accept else ()
    return topics.request_filter(config.device), *own, *desired


class Daemon:
    """One device. `reload` reads the configuration again, for SIGHUP. keeps: see Deployed.

    `run` blocks until `request_stop`, which like `request_reload` may come from a signal handler.

    Raises an EdgedError from the constructor for whatever is wrong with the configuration or the bundles.
    """

    def __init__(
        self, config: Config, transport: Transport, reload: Callable[[], Config] | None = None, *, keeps: bool = True
    ) -> None:
        self._config, self._transport, self._read_again = config, transport, reload
        self._identity = Identity(config.device, uuid.uuid4().hex)
        self._requests_prefix = topics.device(config.device, "req", "")
        self._router, self._bell = Router(), Bell()
        self._network_policy = network_policy(config)
        self._sweeper = Sweeper(self._router.fail, dataclasses.replace(self._network_policy, cpus=()))
        self._intake = self._mqtt_intake()
        self._local = self._local_intake()
        self._storing = Storing(config, transport, self._bell.ring)
        self._parts = self._assembled(keeps=keeps)
        self._router.serve(self._parts.workers)
        hang = Hang(config.status.stuck_factor, config.status.stuck_floor_ms)
        self._report = Report(self._identity, hang, self._transport_facts, self._stream_facts)
        self._report.watch(self._parts.workers)
        self._announcer = Announcer(config.device, self._report, self._send, self._status_facts)
        self._keep_warm: KeepWarm | None = None
        self._memory = OwnMemory(config.memory_lock)
        self._collection = Collection(self._in_flight, self._memory.grown, self._settled)
        accept, told = config.updates.accept, self._parts.deployed.told
        self._desk = Desk(config.device, self._rooms, self._bell.ring, desired=accept, told=told)
        self._unrouted, self._network_scheduling, self._main_scheduling = 0, "", ""
        self._stopping = self._reloading = False
        self._endpoint = self._listening()

    def request_stop(self) -> None:
        """Begin an orderly stop."""
        self._stopping = True
        self._bell.ring()

    def request_reload(self) -> None:
        """Read the configuration again and say what changed."""
        self._reloading = True
        self._bell.ring()

    def run(self) -> bool:
        """Serve until asked to stop; returns whether everything ended in order (False: an invoke hangs)."""
        with self._bell:
            return self._run()

    def _run(self) -> bool:
        share_heap()
        if self._local is not None:
            self._local.start()
        self._sweeper.start()
        if self._endpoint is not None:
            self._endpoint.start()
        self._transport.start(
            self._on_message, self._subscriptions(), will=self._announcer.will(), on_connection=self._on_connection
        )
        self._storing.start()
        for worker in self._parts.workers.values():
            worker.start()
        del worker  # this frame stays: it would keep the worker that another one replaces
        try:
            self._watch()
        finally:
            ended = self._stop()
            if self._endpoint is not None:
                self._endpoint.stop()
            self._collection.release()
            self._memory.release()
            self._parts.deployed.close()
        return ended

    def _watch(self) -> None:
        self._main_scheduling = main_policy(self._config).apply()  # not before: threads inherit what starts them has
        next_metrics = now_ns() + self._interval_ns
        patience = self._config.selection
        manager = Supervised(patience.total_s + patience.candidate_s, self._collection.resettle)
        while not self._stopping:
            tick_s = SOON_S if self._collection.waiting else TICK_S
            self._bell.wait(min(tick_s, max(0.0, (next_metrics - now_ns()) / NS_PER_S)))
            self._collection.turn()
            state, reason = self._state()
            manager.tell(state, reason)
            self._start_keep_warm()
            self._desk.turn()
            if self._reloading:
                self._reload(manager)
            due = now_ns() >= next_metrics
            if due:
                next_metrics = now_ns() + self._interval_ns
                self._announcer.metrics()
            self._announcer.status(state, reason, always=due)
        manager.stopping()

    def _state(self) -> tuple[DeviceState, str]:
        """Return the device's state and the reason, by its models and by the connection."""
        state, reason = self._report.state()
        if (why := self._router.draining) and state is not DeviceState.STUCK:
            return DeviceState.DRAINING, why
        trouble = "; ".join(filter(None, (self._transport.trouble(), self._storing.trouble())))
        if not trouble:
            return state, reason
        worse = DeviceState.DEGRADED if state is DeviceState.READY else state
        return worse, f"{reason}; {trouble}" if reason else trouble

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
        self._desk.stop()
        self._parts.selector.stop()
        self._desk.join(ending.STOP_S)
        self._router.drain()
        if self._keep_warm is not None:
            self._keep_warm.stop()
        self._announcer.status(DeviceState.DRAINING, "", always=True)
        ended = ending.end(self._parts.workers, self._router, self._config.drain_timeout_s)
        self._sweeper.stop()
        self._announcer.status(DeviceState.STOPPED, "", always=True)
        if self._local is not None:
            self._local.stop(ending.STOP_S)
        self._storing.stop(self._transport.stop, ending.STOP_S)
        return ended

    def _reload(self, manager: Supervised) -> None:
        self._reloading = False
        manager.reloading()
        with contextlib.suppress(ConfigError):  # which is logged
            self._take_anew()
        manager.reloaded()

    def _take_anew(self) -> list[str]:
        """Read the configuration again. Returns what changed, in words; raises ConfigError when it is wrong."""
        self._config, lines = live.taken(self._config, self._read_again)
        return lines

    # --- the network thread -------------------------------------------------------------------------------------------

    def _on_message(self, message: Message) -> None:
        if message.topic.startswith(self._requests_prefix):
            self._intake.on_message(message)
        elif message.topic == self._announcer.status_topic:
            self._announcer.heard(message)
        elif not self._desk.on_message(message):
            fed = [s for s in self._parts.streams if matches(s.subscription.filter, message.topic)]
            for stream in fed:
                stream.on_message(message)
            # The session may still hold a subscription of a configuration that was changed since.
            self._unrouted += not fed

    def _on_connection(self, connected: bool, detail: str) -> None:
        if connected:
            for stream in self._parts.streams:
                stream.reconnected(resumed=isinstance(detail, Connected) and detail.resumed)
            # Under load an unprivileged network thread holds back every reply, however urgent the pinned one is.
            self._network_scheduling = self._network_policy.apply()
            self._announcer.repeat()
            self._desk.on_connection()
        self._bell.ring()

    def _local_intake(self) -> LocalIntake | None:
        if self._config.local is None:
            return None
        from edged.local import LocalIntake  # noqa: PLC0415  # most daemons have no local producers

        config, fail = self._config, self._router.fail
        return LocalIntake(self._config.local, config.device, self._intake, self._network_policy, fail)

    def _mqtt_intake(self) -> Intake:
        config = self._config
        memory = ReplyMemory(config.replies.memory_bytes, config.replies.memory_s)
        deadlines = {model.name: model.deadline_ms for model in config.models}
        default = min(deadlines.values(), default=1000)
        quota = Quota(config.clients.max_requests, config.clients.max_payload_bytes)
        return Intake(self._router.submit, self._send, memory, lambda name: deadlines.get(name, default), quota)

    # --- messages out -------------------------------------------------------------------------------------------------

    def _send(self, message: Message, on_sent: OnSent | None = None) -> bool:
        return self._transport.publish(message, on_sent)

    def _subscriptions(self) -> list[Subscription]:
        streams = [Subscription(stream.topic, stream.qos) for stream in self._config.streams]
        own = [Subscription(name, 1) for name in own_filters(self._config)]
        return [*own, *streams]

    def _status_facts(self) -> dict[str, object]:
        scheduling = {"network": self._network_scheduling, "deadline": self._sweeper.scheduling}
        scheduling["main"] = self._main_scheduling
        return {
            **{f"{thread}_scheduling": told for thread, told in scheduling.items()},
            "memory_lock": self._memory.told,
            **self._storing.state(),
        }

    # --- odds and ends ------------------------------------------------------------------------------------------------

    def _transport_facts(self) -> dict[str, object]:
        found: dict[str, object] = {"name": self._transport.name, **self._transport.stats(), "unrouted": self._unrouted}
        found |= {"unknown_model": self._router.unknown.counts().requests, "intake": dict(self._intake.counters)}
        found |= {**self._storing.facts(), "control": self._desk.facts()}
        return found if self._local is None else {**found, "local": self._local.facts()}

    def _listening(self) -> Endpoint | None:
        address = self._config.metrics.address
        if address is None:
            return None
        from edged.prometheus import Endpoint, Figures, Sources  # noqa: PLC0415  # only where it is asked for

        sources = Sources(self._config.device, self._parts.workers, self._transport_facts, self._stream_facts)
        return Endpoint(*address, Figures(sources).page)

    def _stream_facts(self) -> dict[str, object]:
        return {stream.config.name: stream.stats() for stream in self._parts.streams}

    def _assembled(self, *, keeps: bool) -> Parts:
        keep, boot, on_state = self._storing.publish, self._identity.boot, lambda _: self._bell.ring()
        return assemble(
            self._config, self._router, self._sweeper, self._send, on_state, keep=keep, boot=boot, keeps=keeps
        )

    def _rooms(self) -> Rooms:
        from edged.control.thread import Rooms  # noqa: PLC0415  # as Control itself

        settle, wake = self._collection.resettle, self._bell.ring
        return Rooms(lambda: self._config, self._parts, self._router, self._send, self._take_anew, wake, settle)

    @property
    def _interval_ns(self) -> int:
        return int(self._config.metrics.interval_s * NS_PER_S)

    def _in_flight(self) -> bool:
        return any(worker.unanswered for worker in list(self._parts.workers.values()))

    def _settled(self) -> None:
        self._memory.settle()
        self._announcer.repeat()  # with what was achieved
