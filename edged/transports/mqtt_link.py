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

from edged.clock import NS_PER_S, now_ns
from edged.transports import mqtt_properties, mqtt_reasons
from edged.transports.base import Connected, Denied, Message, OnConnection, Subscription
from edged.transports.counters import Counters
from edged.transports.mqtt_health import Health
from edged.transports.mqtt_ledger import Ledger
from edged.transports.mqtt_login import Login
from edged.transports.mqtt_paho import make_client
from edged.transports.mqtt_session import ProtocolChoice
from edged.transports.mqtt_settings import MqttSettings

_log = logging.getLogger(__name__)
_VERSIONS = {"5": MQTTProtocolVersion.MQTTv5, "3.1.1": MQTTProtocolVersion.MQTTv311}
_RECEIVE_MAXIMUM = 65_535  # of a broker that names none (MQTT 5.0, 3.2.2.3.3)
# With new TLS files the connection is left at the first quiet moment, later when there is nothing to write, at last
# whatever there is.
_QUIET_S = 0.1
_PATIENCE_NS, _LIMIT_NS = 2 * NS_PER_S, 5 * NS_PER_S


class Link:
    """Keeps one client connected. `connected` is for reading. Raises BadDataError when a TLS file is unusable."""

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
        self._choice = ProtocolChoice(settings)
        self._login = Login(settings, counters)
        self._begun, self._stopping, self._abort = threading.Event(), threading.Event(), False
        self._thread: threading.Thread | None = None
        self._accepted_ns = 0
        self._ever_accepted = False
        self._reason, self._refusal, self._unreached = "", 0, False
        self._reported: tuple[bool, str] | None = None
        self._renewing_ns = 0
        self.connected = False
        client_id = settings.client_id or f"edged-{secrets.token_hex(8)}"
        self.client = make_client(settings, client_id, drive=self._drive, ledger=ledger)
        self.health = Health(settings, self.client, client_id, ledger, counters)
        if settings.tls:
            self.client.tls_set_context(self._login.context)
        self.client.on_pre_connect = self._between
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = self._on_subscribe

    def start(self, will: Message | None) -> None:
        """Begin; raises ValueError when the will cannot be sent."""
        if will is not None:
            mqtt_properties.check(will)
            packed = mqtt_properties.PackedProperties(mqtt_properties.pack(will))
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

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def trouble(self) -> str:
        """Return what is wrong with the connection, though there is one again and again."""
        return self.health.trouble(self._accepted_ns if self.connected else 0)

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
        self._reason, self._refusal, self._accepted_ns = "", 0, 0
        self._unreached, self._renewing_ns = False, 0
        answering = False
        try:
            self._connect()
            answering = True
            if self._stopping.is_set():
                self.client.disconnect()  # `stop` came too early to find a socket
            self._serve()
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that IDNA cannot encode
            self._reason = mqtt_reasons.of_error(error, tls=self._settings.tls)
            self._unreached = not answering and not isinstance(error, ssl.SSLError)
        except Exception as error:  # noqa: BLE001 (the thread's top: a fault in the client must not end the daemon's ears)
            _log.exception("the MQTT client failed; a new connection is made")
            self._counters.add("client_errors")
            self._reason = f"fault in the MQTT client: {error}"
        self._close_gate()
        self._reason = self._reason or "connection lost"
        if answering and self._settings.tls and not (self._accepted_ns or self._refusal):
            self._reason += mqtt_reasons.CERTIFICATE_HINT
        return answering

    def _serve(self) -> None:
        watched = self._login.watched
        while self.client.loop() == MQTTErrorCode.MQTT_ERR_SUCCESS and not self._abort:
            if self._reason:  # to leave a connection that is up
                self.client.disconnect()
            elif watched:
                self._renew()

    def _renew(self) -> None:
        """Leave the connection for one with the new TLS files, once there are any."""
        if not self._renewing_ns:
            self._renewing_ns = now_ns() if self._login.renewed() else 0
        elif self._accepted_ns and self._may_leave(now_ns() - self._renewing_ns):
            self._counters.add("renewals")
            self._reason = mqtt_reasons.RENEWAL

    def _may_leave(self, waited_ns: int) -> bool:
        """Whether nothing waits to be written, and (for a while at first) nothing comes either."""
        before = self._counters.snapshot()
        if waited_ns < _PATIENCE_NS and self.client.loop(_QUIET_S) != MQTTErrorCode.MQTT_ERR_SUCCESS:
            return False
        after = self._counters.snapshot()
        quiet = all(before[name] == after[name] for name in ("received", "sent"))
        return (quiet and self._ledger.load()[1] == 0) or waited_ns >= _LIMIT_NS

    def _connect(self) -> None:
        settings, client = self._settings, self.client
        self._choice.before_attempt(now_ns())
        client.speak(_VERSIONS[self._choice.current])
        if settings.username is not None:
            client.username_pw_set(settings.username, self._login.password())
        self._login.refresh()
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
        self._counters.add("dropped_connection_lost", self._ledger.begin())

    def _close_gate(self) -> None:
        self.connected = False
        self.client.accept(open_=False)

    def _after(self, *, answering: bool) -> float:
        """Learn from the connection that ended; returns how long to wait before the next."""
        if self._reason in (mqtt_reasons.RENEWAL, mqtt_reasons.SECOND_LOOK):
            return 0.0
        if self._accepted_ns:
            self._reason += self.health.lived(now_ns() - self._accepted_ns)
            return self.health.backoff.delay_s()
        if self._unreached:
            self.health.backoff.unreached()
        elif not self._refusal or isinstance(self._reason, Denied):
            self._login.rejected()
        if self._other_version(answering=answering):
            self._reason += f"; trying MQTT {self._choice.current}"
            return 0.0
        return self.health.backoff.delay_s()

    def _other_version(self, *, answering: bool) -> bool:
        """Whether the broker will not speak this version: it says so, or hangs up before CONNACK."""
        if self._refusal:
            return self._refusal == mqtt_reasons.UNSUPPORTED_VERSION and self._choice.refused(now_ns())
        return answering and self._choice.closed_early(now_ns())

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
        self._login.accepted()
        if not self._choice.accepted():
            self._reason = mqtt_reasons.SECOND_LOOK
            self.client.accept(open_=True)  # what waits may go: held back, it would end the connection without goodbye
            return
        self._accepted_ns, self._ever_accepted = now_ns(), True
        self.health.limit_told(getattr(properties, "MaximumPacketSize", 0))
        if self._filters:
            self.client.subscribe(self._filters)
        self.client.allow(getattr(properties, "ReceiveMaximum", _RECEIVE_MAXIMUM))
        self.client.accept(open_=True)
        self.connected = True
        self._counters.add("connects")
        self._report(connected=True, detail=Connected(f"MQTT {self._choice.current}", resumed=flags.session_present))

    def _refused(self, reason: ReasonCode) -> None:
        self._refusal, self._reason = reason.value, mqtt_reasons.of_refusal(reason)

    def _on_disconnect(
        self,
        _client: Client,
        _userdata: object,
        flags: DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        self._close_gate()
        self.health.disconnected(flags, reason)
        self._reason = self._reason or mqtt_reasons.of_end(flags, reason)

    def _on_subscribe(
        self, _client: Client, _userdata: object, _mid: int, reasons: list[ReasonCode], _properties: Properties | None
    ) -> None:
        self.health.subscribed((wanted for wanted, _qos in self._filters), reasons)
