"""Requests of producers on this box: their transport, and an intake that answers over it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from edged import statekey
from edged.affinity import ThreadPolicy
from edged.config_device import LocalConfig
from edged.errors import Code, RequestError
from edged.intake import Intake
from edged.request import Request
from edged.transports import shm_memory
from edged.transports.shm import ShmTransport
from edged.transports.shm_wire import Hello


class LocalIntake:
    """The way in beside that of the broker, whose intake is `beside`. policy: of the thread that serves producers.

    fail: answers an admitted request with an error, unless it was answered already.
    Raises UnavailableError where the system lacks what it needs, ConfigError where it has too little memory.
    """

    def __init__(
        self,
        config: LocalConfig,
        device: str,
        beside: Intake,
        policy: ThreadPolicy,
        fail: Callable[[Request, RequestError], None],
    ) -> None:
        self._transport = ShmTransport(config, device, self._give_up)
        shm_memory.refuse_too_much(Hello(config.slots, config.slot_bytes), config.max_producers)
        self._intake = beside.beside(self._transport.publish, self._heed, statekey.of_producer)
        self._policy, self._fail, self._scheduling = policy, fail, ""
        self._last: dict[str, Request] = {}  # of each slot, by its reply topic; answered ones hold no payload

    def start(self) -> None:
        """Listen. Raises ConfigError, and UnavailableError when another process listens there."""
        self._transport.start(self._intake.on_message, on_connection=self._on_connection)

    def stop(self, timeout_s: float) -> None:
        """Tell the producers and end."""
        self._transport.stop(timeout_s)

    def facts(self) -> dict[str, object]:
        """Return the counters, and what the thread's priority is, for the metrics."""
        counted = {**self._transport.stats(), "intake": dict(self._intake.counters)}
        return {**counted, "scheduling": self._scheduling}

    def _heed(self, request: Request) -> None:
        self._last[request.origin.topic] = request

    def _give_up(self, reply_topics: Sequence[str]) -> None:
        """Answer what a producer that is gone had asked, so that neither queue nor memory holds it any longer."""
        for topic in reply_topics:
            request = self._last.pop(topic, None)
            if request is not None:
                self._fail(request, RequestError(Code.CANCELLED, "the producer is gone"))

    def _on_connection(self, _connected: bool, _detail: str) -> None:
        self._scheduling = self._policy.apply()
