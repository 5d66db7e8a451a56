"""One stream: sensor messages in, a request per full window out, answers published beside the device.

Rules it keeps:
- A window holds consecutive samples of one key only. A gap restarts it; where no seq would show whether something is
  missing, so does a bad sample, a repeated one, and a lost connection unless the broker kept all samples meanwhile.
- Nothing is dropped without being counted, and nothing a sensor sends makes `on_message` raise.
- Memory is bounded: `max_keys` windows; the key not heard of for longest makes room for a new one.
- A consumer can tell answers that come twice: by stream, key and n, and with `store` by the daemon's start (boot).
Cost: a sample is decoded and stored on the network thread; the model's work is done elsewhere.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from edged import statekey, topics
from edged.clock import NS_PER_MS, NS_PER_S, now_ns, wall_s
from edged.request import OnSent, Reply, Request
from edged.streams.continuity import Continuity, Verdict
from edged.streams.feed import Feed
from edged.streams.samples import Bad, Columns, Samples, decoder
from edged.streams.window import FloatArray, Window
from edged.transports.base import Message, Subscription

if TYPE_CHECKING:
    from edged.bundle import Signature
    from edged.config_streams import StreamConfig

log = logging.getLogger(__name__)

_JSON = "application/json"
_LOG_EVERY_NS = 60 * NS_PER_S
_COUNTERS = (
    "samples", "bad", "gaps", "missed", "duplicates", "restarts", "interrupted", "retained",
    "windows", "answered", "failed", "unsent", "evicted",
)  # fmt: skip
_BREAKS = {Verdict.GAP: "gaps", Verdict.RESTART: "restarts"}


class _Key:
    """What is known of one key. windows: the number of its next one.

    queued: its sensor sends at QoS 1, so that a broker that keeps the session keeps what comes meanwhile.
    repeating: since the connection came up it sent nothing but repeats. settled: it has sent something new.
    """

    __slots__ = ("continuity", "queued", "repeating", "settled", "window", "windows")

    def __init__(self, window: Window, continuity: Continuity, windows: int) -> None:
        self.window, self.continuity, self.windows, self.queued = window, continuity, windows, True
        self.repeating = self.settled = False

    def restart(self) -> bool:
        """Begin the window anew; returns whether anything was lost with it."""
        begun = self.window.begun
        self.window.restart()
        return begun


class Stream:
    """Windows over one topic filter. `on_message` runs on the network thread, answers may come from any thread.

    signature: of the stream's model. submit: takes a request and sees that it is answered. publish: a transport's.
    deadline_ms: used where the configuration has none, counted from the first byte of the sample that fills a window.
    boot: what tells this start of the daemon from others, for answers that may come after the next one.
    Raises ValueError, in words for whoever wrote the configuration, when the stream cannot feed the model.
    """

    def __init__(
        self,
        config: StreamConfig,
        signature: Signature,
        device: str,
        submit: Callable[[Request], None],
        publish: Callable[[Message, OnSent | None], bool],
        deadline_ms: int,
        boot: str = "",
    ) -> None:
        self.config, self._device, self._submit, self._publish = config, device, submit, publish
        self._boot = boot
        self._qos = max(1, config.qos) if config.store else config.qos
        self._columns = Columns.of(config.fields, config.seq, config.time)
        self._decode = decoder(config.decode, self._columns)
        self._feed = Feed(signature, config.model, config.window.length, len(self._columns.features))
        self._deadline_ns = (config.deadline_ms or deadline_ms) * NS_PER_MS
        self._keys: OrderedDict[str, _Key] = OrderedDict()
        self._counts = Counter(dict.fromkeys(_COUNTERS, 0))
        self._first_n = 0  # of a new key: no number comes twice, also when a key was forgotten meanwhile
        self._answer_lock = threading.Lock()
        self._next_log_ns = 0

    @property
    def subscription(self) -> Subscription:
        """What the transport must subscribe to."""
        return Subscription(self.config.topic, self.config.qos)

    def stats(self) -> dict[str, int]:
        """Counters since start, and `keys`, how many windows are held now.

        samples (used), bad, gaps, missed (samples a gap in seq skipped), duplicates, restarts (new recordings),
        interrupted (windows begun anew for a lost connection, or for a sample that the broker sent again), retained
        (stale values ignored), windows, answered, failed (error answers), unsent (answers the transport did not take),
        evicted (keys).
        """
        return {**self._counts, "keys": len(self._keys)}

    def on_message(self, message: Message) -> None:
        """Take the samples of one sensor message in; submits a request for each window they fill."""
        if message.retain:
            # A retained value is as old as the broker likes: it is not the sample before the next one.
            self._counts["retained"] += 1
            return
        key = self._key(message.topic)
        if key is None:
            self._bad(None, message.topic, f"the topic has no usable level {self.config.key_level}")
            return
        if message.dup and self._columns.seq is None and self._out_of_place(key):
            self._counts["duplicates"] += 1
            return
        for item in self._decode(message.payload):
            if isinstance(item, Bad):
                self._bad(key, message.topic, item.reason)
            else:
                self._take(key, item, message)

    def reconnected(self, *, resumed: bool) -> None:
        """Begin windows anew in which samples may be missing: there was no connection for a while.

        resumed: the broker kept the session meanwhile, and with it what came at QoS 1. On the network thread, before
        the first message of the new connection. Where samples have a seq, that tells what is missing, and nothing else
        is done: a jump of `time` within `max_gap_s` would not.
        """
        if self._columns.seq is not None:
            return
        for known in self._keys.values():
            known.repeating = known.settled = False
            if not (resumed and known.queued):
                self._counts["interrupted"] += known.restart()

    def _out_of_place(self, key: str) -> bool:
        """Begin a window anew for a message without seq that the broker sent before; returns whether to drop it.

        Nobody knows whether it came the first time. On a new connection the repeats of what was not acknowledged come
        first and in order: they follow each other, and what is new follows them. Later ones may stand anywhere: they
        are in no window, and no window goes over them.
        """
        known = self._keys.get(key)
        if known is None:
            return False
        if known.settled or not known.repeating:
            self._counts["interrupted"] += known.restart()
        return known.settled

    def _key(self, topic: str) -> str | None:
        level = self.config.key_level
        if level is None:
            return ""
        levels = topic.split("/")
        key = levels[level] if level < len(levels) else ""
        return key if topics.valid_level(key) else None

    def _bad(self, key: str | None, topic: str, reason: str) -> None:
        self._counts["bad"] += 1
        known = None if key is None else self._keys.get(key)
        if known is not None and self._columns.seq is None and known.window.begun:
            known.window.restart()
            self._counts["gaps"] += 1
        now = now_ns()
        if now >= self._next_log_ns:
            self._next_log_ns = now + _LOG_EVERY_NS
            bad = self._counts["bad"]
            log.warning("stream %s: bad sample on %s: %s (%d bad so far)", self.config.name, topic, reason, bad)

    def _take(self, key: str, samples: Samples, message: Message) -> None:
        known = self._known(key)
        verdict = known.continuity.judge(samples.seq, samples.time)
        if verdict is Verdict.DUPLICATE:
            self._counts["duplicates"] += 1
            return
        if verdict in _BREAKS:
            self._counts[_BREAKS[verdict]] += 1
            self._counts["missed"] += known.continuity.missed
            known.window.restart()
        self._counts["samples"] += len(samples.rows)
        known.queued = message.qos > 0
        known.repeating, known.settled = message.dup, known.settled or not message.dup
        for window in known.window.push(samples.rows):
            self._submit(self._request(key, known, window, message.received_ns))

    def _known(self, key: str) -> _Key:
        known = self._keys.get(key)
        if known is not None:
            self._keys.move_to_end(key)
            return known
        if len(self._keys) >= self.config.max_keys:
            _, gone = self._keys.popitem(last=False)
            self._counts["evicted"] += 1
            self._first_n = max(self._first_n, gone.windows)
        shape = self.config.window
        window = Window(shape.length, shape.hop, len(self._columns.features))
        known = self._keys[key] = _Key(window, Continuity(self.config.max_gap_s), self._first_n)
        return known

    def _request(self, key: str, known: _Key, window: FloatArray, received_ns: int) -> Request:
        annotations = self._annotations(key, known)
        known.windows += 1
        self._counts["windows"] += 1
        return Request(
            self.config.model,
            self._feed.payload(window),
            codec="raw",
            reply_codec=self.config.reply,
            received_ns=received_ns,
            deadline_ns=received_ns + self._deadline_ns,
            respond=self._respond,
            origin=key,
            key=statekey.of_stream(self.config.name, key),
            annotations=annotations,
        )

    def _annotations(self, key: str, known: _Key) -> dict[str, object]:
        found: dict[str, object] = {"stream": self.config.name, "key": key, "n": known.windows}
        if self.config.store:
            found |= {"boot": self._boot, "ts": wall_s()}
        seq, time = known.continuity.seq, known.continuity.time
        if seq is not None:
            found |= {"seq": seq, "first_seq": seq - self.config.window.length + 1}  # no gap inside a window
        return found if time is None else found | {"time": time}

    def _respond(self, request: Request, reply: Reply, on_sent: OnSent | None) -> None:
        levels = (self.config.name, request.origin) if request.origin else (self.config.name,)
        facts = request.annotations or {}
        payload = reply.payload if reply.error is None else _told(reply.payload, facts)
        message = Message(topics.device(self._device, "out", *levels), payload, qos=self._qos)
        if reply.content_type != _JSON:
            # JSON speaks for itself, and stays without properties: rumqttd drops a 3.1.1 subscriber that is sent any.
            message.content_type = reply.content_type
            message.user = (("status", "ok"), ("meta", reply.meta)) if reply.meta else (("status", "ok"),)
            if self.config.store:
                message.user += (("window", ";".join(f"{name}={facts[name]}" for name in ("boot", "n", "ts"))),)
        sent = self._publish(message, on_sent)
        with self._answer_lock:
            self._counts["answered" if reply.error is None else "failed"] += 1
            self._counts["unsent"] += not sent


def _told(error: bytes, facts: Mapping[str, object]) -> bytes:
    """Return the error's JSON object with the facts of its window beside it: whose answer it stands for."""
    return error[:-1] + b", " + json.dumps(facts)[1:].encode() if facts else error
