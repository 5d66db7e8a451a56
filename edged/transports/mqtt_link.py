"""The connection of an MQTT transport: made, subscribed, lost, made again.

Everything here but `stop` runs in the thread that paho's `loop_start()` makes. One connection is one call of
`_attempt`; it returns why the connection ended.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import threading
from collections.abc import Sequence

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edged.clock import now_ns
from edged.transports import mqtt_properties
from edged.transports.base import Connected, Denied, Message, OnConnection, Subscription
from edged.transports.counters import Counters
from edged.transports.mqtt_ledger import Ledger
from edged.transports.mqtt_paho import make_client
from edged.transports.mqtt_session import Backoff, ProtocolChoice
from edged.transports.mqtt_settings import MqttSettings

_log = logging.getLogger(__name__)
_VERSIONS = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}
_UNSUPPORTED_VERSION = 132
_NOT_ALLOWED = frozenset({134, 135, 138})  # bad user name or password, not authorized, banned
# What a port that speaks no TLS makes of OpenSSL's first bytes.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE"})
_TLS_HINT = " (does this port speak TLS? mqtts:// is for one that does, most often 8883)"
# Connections in a row that carried acknowledged messages, brought not one acknowledgement and died.
_BARREN_LIMIT = 5


class Link:
    """Keeps one client connected. `connected` and `max_packet` (bytes, 0 = no limit known) are for reading."""

    def __init__(
        self,
        settings: MqttSettings,
        ledger: Ledger,
        counters: Counters,
        subscriptions: Sequence[Subscription],
        on_connection: OnConnection | None,
    ) -> None:
        self._settings, self._ledger, self._counters = settings, ledger, counters
        self._filters = [(subscription.filter, subscription.qos) for subscription in subscriptions]
        self._on_connection = on_connection
        self._choice, self._backoff = ProtocolChoice(settings), Backoff(settings)
        self._begun, self._stopping, self._abort = threading.Event(), threading.Event(), False
        self._thread: threading.Thread | None = None
        self._accepted_ns = 0
        self._ever_accepted = False
        self._reason, self._refusal, self._unreached = "", 0, False
        self._reported: tuple[bool, str] | None = None
        self._barren = self._acknowledged = 0
        self.connected = False
        self.max_packet = 0
        client_id = settings.client_id or f"edged-{secrets.token_hex(8)}"
        self.client = make_client(settings, client_id, drive=self._drive, written=ledger.written, in_use=ledger.in_use)
        self.client.on_pre_connect = self._between
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = self._on_subscribe

    def start(self, will: Message | None) -> None:
        """Begin; raises ValueError when the will cannot be sent."""
        if will is not None:
            mqtt_properties.check(will)
            packed = mqtt_properties.pack(will)
            self.client.will_set(will.topic, bytes(will.payload), will.qos, will.retain, packed)
        self.client.loop_start()
        self._begun.wait()  # from here on `stop` knows its thread

    def stop(self, timeout_s: float) -> None:
        """Disconnect cleanly, so that no will is sent, and end the thread; by force at the timeout."""
        self._stopping.set()
        self.client.disconnect()
        thread = self._thread
        if thread is None or self.in_thread():
            return
        thread.join(timeout_s)
        if thread.is_alive():
            self._abort = True
            self.client.disconnect()  # wakes the thread from its select
            thread.join(timeout_s)

    def in_thread(self) -> bool:
        """Whether the caller is the network thread, in a callback."""
        return self._thread is threading.current_thread()

    def acknowledged(self) -> None:
        """Note that the broker acknowledged a publish: this connection works."""
        self._acknowledged += 1

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def facts(self) -> dict[str, int]:
        """Return the protocol level (5, or 4 for MQTT 3.1.1), whether connected, and how often 5 was given up."""
        level = int(_VERSIONS[self._choice.current])
        return {"protocol": level, "connected": int(self.connected), "fallbacks": self._choice.fallbacks}

    def _drive(self) -> None:
        self._thread = threading.current_thread()
        self._begun.set()
        while not self._stopping.is_set():
            answering = self._attempt()
            if self._stopping.is_set():
                break
            self._counters.add("disconnects" if self._accepted_ns else "connect_failures")
            wait_s = self._after(answering=answering)
            self._report(connected=False, detail=self._reason)
            self._stopping.wait(wait_s)
        self.client.close()

    def _attempt(self) -> bool:
        """Connect and serve until the connection ends; returns whether TCP (and TLS) came up."""
        self._reason, self._refusal, self._accepted_ns, self._acknowledged = "", 0, 0, 0
        self._unreached = False
        answering = False
        try:
            self._connect()
            answering = True
            if self._stopping.is_set():
                self.client.disconnect()  # `stop` came too early to find a socket
            while self.client.loop() == MQTTErrorCode.MQTT_ERR_SUCCESS and not self._abort:
                pass
        except ssl.SSLError as error:
            self._reason = f"TLS: {error}{_TLS_HINT if _no_tls(error) else ''}"
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA cannot encode
            self._reason = f"{getattr(error, 'strerror', None) or error}"
            if self._settings.tls and isinstance(error, ConnectionResetError):
                self._reason += _TLS_HINT
            self._unreached = not answering
        except Exception as error:  # noqa: BLE001 (the thread's top: a fault in the client must not end the daemon's ears)
            _log.exception("the MQTT client failed; a new connection is made")
            self._counters.add("client_errors")
            self._reason = f"fault in the MQTT client: {error}"
        self._close_gate()
        self._reason = self._reason or "connection lost"
        return answering

    def _connect(self) -> None:
        settings, client = self._settings, self.client
        self._choice.before_attempt(now_ns())
        client.speak(_VERSIONS[self._choice.current])
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho leaves it untyped
        properties.SessionExpiryInterval = settings.session_expiry_s
        clean = not settings.resume and not self._ever_accepted
        client.connect_async(
            settings.host, settings.port, settings.keepalive_s, clean_start=clean, properties=properties
        )
        client.reconnect()

    def _between(self, _client: Client, _userdata: object) -> None:
        # paho has cleared its queue: what was in it at QoS 0 is gone, QoS 1 is sent again after CONNACK.
        self.client.begin()
        self._counters.add("dropped_connection_lost", self._ledger.lose_unacknowledged())

    def _close_gate(self) -> None:
        self.connected = False
        self.client.accept(open_=False)

    def _after(self, *, answering: bool) -> float:
        """Learn from the connection that ended; returns how long to wait before the next."""
        if self._accepted_ns:
            self._backoff.lived(now_ns() - self._accepted_ns)
            self._note_barren()
            if self._backoff.contested:
                self._reason += " (cut again and again: does another client use this client id?)"
        elif self._other_version(answering=answering):
            self._reason += f"; trying MQTT {self._choice.current}"
            return 0.0
        return self._backoff.delay_s()

    def _other_version(self, *, answering: bool) -> bool:
        """Whether the broker will not speak this version: it says so, or hangs up before CONNACK."""
        if self._refusal:
            return self._refusal == _UNSUPPORTED_VERSION and self._choice.refused(now_ns())
        return answering and self._choice.closed_early(now_ns())

    def _note_barren(self) -> None:
        """Drop the largest waiting message when connection after connection dies over the same ones.

        A broker that closes the connection over a message too large for it would get it again for ever.
        """
        largest = self._ledger.largest_unacknowledged()
        self._barren = self._barren + 1 if largest and not self._acknowledged else 0
        if self._barren >= _BARREN_LIMIT:
            self._barren = 0
            self._purge(largest - 1, "dropped_poison")

    @property
    def _where(self) -> str:
        return f"{self._settings.host}:{self._settings.port}"

    def _report(self, *, connected: bool, detail: str) -> None:
        if self._reported == (connected, detail):
            return
        self._reported = (connected, detail)
        self._log(connected=connected, detail=detail)
        if self._on_connection is not None:
            self._counters.guard(self._on_connection, connected, detail)

    def _log(self, *, connected: bool, detail: str) -> None:
        quiet = self._settings.quiet
        if connected:
            _log.log(logging.DEBUG if quiet else logging.INFO, "connected to %s with %s", self._where, detail)
            return
        what = ("cannot reach " if self._unreached else "") + "%s: %s"
        what += "" if "; trying" in detail else "; trying again"
        _log.log(logging.DEBUG if quiet else logging.WARNING, what, self._where, detail)

    def _on_connect(
        self,
        _client: Client,
        _userdata: object,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        if reason.is_failure:
            self._refused(reason)
            return
        self._accepted_ns, self._ever_accepted = now_ns(), True
        self._choice.accepted()
        self.max_packet = getattr(properties, "MaximumPacketSize", 0)
        if self.max_packet and self._ledger.largest_unacknowledged() > self.max_packet:
            self._purge(self.max_packet, "dropped_too_large")
        if self._filters:
            self.client.subscribe(self._filters)
        self.client.accept(open_=True)
        self.connected = True
        self._counters.add("connects")
        self._report(connected=True, detail=Connected(f"MQTT {self._choice.current}", resumed=flags.session_present))

    def _refused(self, reason: ReasonCode) -> None:
        self._refusal = reason.value
        self._reason = f"refused by the broker: {reason}"
        if reason.value in _NOT_ALLOWED:
            self._reason = Denied(f"{self._reason} (check user name, password or certificate)")

    def _on_disconnect(
        self,
        _client: Client,
        _userdata: object,
        flags: DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        self._close_gate()
        if not self._reason:
            self._reason = (
                f"closed by the broker: {reason}" if flags.is_disconnect_packet_from_server else _lost(reason)
            )

    def _on_subscribe(
        self, _client: Client, _userdata: object, _mid: int, reasons: list[ReasonCode], _properties: Properties | None
    ) -> None:
        for reason, (wanted, _qos) in zip(reasons, self._filters, strict=False):
            if reason.is_failure:
                self._counters.add("subscriptions_refused")
                _log.warning("%s: subscription to %s refused: %s", self._where, wanted, reason)

    def _purge(self, limit: int, counter: str) -> None:
        """Take waiting messages larger than `limit` bytes out of the client and queue the others again."""
        for old in self.client.drop_out_messages():
            entry = self._ledger.forget(old.mid)
            if entry is not None and entry.size > limit:
                self._ledger.release(entry.size)
                self._counters.add(counter)
                self._ledger.finished(entry)
                _log.warning("%s: gave up a message of %d bytes on %s", self._where, entry.size, old.topic)
                continue
            info = self.client.publish(old.topic, old.payload, old.qos, old.retain, old.properties)
            if entry is not None:
                self._ledger.enter(info.mid, entry)


def _no_tls(error: ssl.SSLError) -> bool:
    return isinstance(error, ssl.SSLEOFError) or error.reason in _NO_TLS


def _lost(reason: ReasonCode) -> str:
    text = str(reason)
    return "connection lost" if text == "Unspecified error" else f"connection lost: {text}"
