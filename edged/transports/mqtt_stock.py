"""paho's client as it is, behind the few methods and callbacks that the transport needs.

It serves where the installed paho is not the one that `mqtt_fast` was written for: there a message is received when
its callback runs, and sent when paho says so.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edged.clock import now_ns
from edged.transports.base import Message
from edged.transports.mqtt_ledger import Entry, Ledger
from edged.transports.mqtt_properties import MAX_USER_PROPERTIES, PackedProperties

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)  # Linux


def rearm_quickack(sock: Any) -> None:
    """Acknowledge what arrived at once; the kernel forgets the option, so it is set again at each read."""
    if _QUICKACK is not None and sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


def _nothing(*_said: object) -> None:
    pass


class StockClient(Client):
    """paho as it is, but for the loop: `drive` runs in the thread that `loop_start()` makes.

    Whoever owns it sets the callbacks; all run in the network thread. incoming: a message came. dropped: one was
    dropped, under that counter. finished: nothing more will be done for the message with that number (written at
    QoS 0, acknowledged else); it was written then (ns; 0: nobody knows), and refused by the broker for that reason.
    """

    fast = False

    def __init__(
        self, client_id: str, *, clean_session: bool, drive: Callable[[], None], ledger: Ledger, quickack: bool
    ) -> None:
        # Made for 3.1.1, since paho takes `clean_session` for no other; `speak` says what is really used.
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=clean_session,
            protocol=MQTTProtocolVersion.MQTTv311,
            reconnect_on_failure=False,
        )
        self._drive, self._ledger, self._quickack = drive, ledger, quickack
        self.incoming: Callable[[Message], None] = _nothing
        self.dropped: Callable[[str], None] = _nothing
        self.finished: Callable[[int, int, ReasonCode | None], None] = _nothing
        self.on_message, self.on_publish = self._message_came, self._publish_done

    def loop_forever(self, timeout: float = 1.0, retry_first_connection: bool = False) -> MQTTErrorCode:  # noqa: ARG002 (paho's signature)
        """Run the transport's own loop, which reconnects with jitter and says why a connection failed."""
        self._drive()
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def speak(self, protocol: MQTTProtocolVersion) -> None:
        """Use this version from the next connect on. The same object keeps what it has queued."""
        self._protocol = protocol

    def accept(self, open_: bool) -> None:
        """Let publishes into the connection, or hold them off while there is none."""

    def allow(self, unanswered: int) -> None:
        """Note how many messages the broker takes unacknowledged; on a new connection, before `accept`.

        paho knows no such limit but its own, and on a new connection not even that.
        """

    def begin(self) -> None:
        """Forget the connection before; called between two."""

    def close(self) -> None:
        """Close what is open, when the thread has ended."""
        self._reset_sockets()

    def facts(self) -> dict[str, int]:
        """Return counters of the client's own."""
        return {}

    def send(self, message: Message, properties: bytes, entry: Entry) -> str:
        """Send a message; returns "" or under which counter it was dropped. Any thread.

        properties: as `mqtt_properties.pack` has them. At QoS 1 "no connection" means queued: the code stays in paho's
        answer even when the message is delivered later.
        """
        if not self._ledger.reserve(entry.size):
            return "dropped_outgoing_full"
        # A copy of what can change: at QoS 1 the client keeps it to send it again.
        payload = message.payload if isinstance(message.payload, bytes) else bytes(message.payload)
        info = self.publish(message.topic, payload, message.qos, message.retain, PackedProperties(properties))
        full = info.rc == MQTTErrorCode.MQTT_ERR_QUEUE_SIZE
        if full if entry.qos else info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._ledger.release(entry.size)
            return "dropped_outgoing_full" if entry.qos else "dropped_disconnected"
        settled = entry.qos == 0 and info.is_published()
        return "" if self._ledger.enter(info.mid, entry, settled=settled) else "dropped_connection_lost"

    def drop_larger(self, limit: int) -> list[Entry]:
        """Take waiting messages of more than `limit` bytes out, and return them; their room stays reserved.

        paho lets go of all or of none: the others are queued again, behind what another thread publishes meanwhile.
        """
        found = []
        for old in self.drop_out_messages():
            entry = self._ledger.forget(old.mid)
            if entry is not None and entry.size > limit:
                found.append(entry)
                continue
            info = self.publish(old.topic, old.payload, old.qos, old.retain, old.properties)
            if entry is not None:
                self._ledger.enter(info.mid, entry)
        return found

    def first_byte_ns(self) -> int:
        """Return when the packet at hand began to arrive (here: now)."""
        return now_ns()

    def _rearm(self) -> None:
        if self._quickack:
            rearm_quickack(self.socket())

    def _message_came(self, _client: Client, _userdata: object, raw: MQTTMessage) -> None:
        self._rearm()
        found = raw.properties
        user = getattr(found, "UserProperty", ())
        if len(user) > MAX_USER_PROPERTIES:
            self.dropped("dropped_properties")
            return
        try:
            message = Message(
                raw.topic, raw.payload, raw.qos, raw.retain, received_ns=self.first_byte_ns(), dup=raw.dup
            )
        except UnicodeDecodeError:
            self.dropped("dropped_bad_topic")
            return
        message.response_topic = getattr(found, "ResponseTopic", None)
        message.correlation = getattr(found, "CorrelationData", None)
        message.content_type = getattr(found, "ContentType", None)
        message.expiry_s = getattr(found, "MessageExpiryInterval", None)
        message.user = tuple(user)
        self.incoming(message)

    def _publish_done(
        self, _client: Client, _userdata: object, mid: int, reason: ReasonCode, _properties: Properties | None
    ) -> None:
        self._rearm()
        self.finished(mid, 0, reason if reason.is_failure else None)
