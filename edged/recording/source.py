"""One message → the samples in it. Each source counts what it cannot use, and keeps the first few reasons in words.

Windows   what a stream of the daemon would feed its model: the same code cuts them
Payloads  what a request carries: the same codecs read it, into arrays of the model's inputs
Arrays    .npy payloads of a model that is not known: the first one decides dtype and shape
Requests  of Payloads or Arrays those that the daemon would run: its own intake sorts them
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from edged import codecs, npyformat, quant, topics
from edged.bundle import Signature, TensorSpec
from edged.codecs.common import all_finite
from edged.config import RepliesConfig
from edged.config_streams import StreamConfig
from edged.errors import RequestError
from edged.intake import REFUSALS, Intake
from edged.recording.keep import Array, Sample
from edged.recording.npzfile import Facts, facts
from edged.replies import ReplyMemory
from edged.request import OnSent, Request
from edged.shown import plain
from edged.streams import Stream
from edged.streams.samples import Bad, Columns, decoder
from edged.transports.base import Message

# Different reasons kept in words; all are counted.
MAX_REASONS = 5
_SHOWN_TOPIC = 80
_STREAM_COUNTERS = ("samples", "gaps", "missed", "duplicates", "restarts", "evicted", "interrupted")

OnSample = Callable[[str, Sample], None]


class Source(Protocol):
    """Turns messages into samples. reasons: why some could not be used, with their topics; at most `MAX_REASONS`.

    facts: dtype and shape of each array; {} where the first message will decide.
    """

    reasons: list[str]
    facts: Mapping[str, Facts]

    def take(self, message: Message, on_sample: OnSample) -> None:
        """Call `on_sample(key, sample)` for every sample that the message completes; never raises."""

    def interrupted(self) -> None:
        """Messages may be missing from here on: the connection was lost. On the transport's thread, as `take`."""

    def counters(self) -> dict[str, int]:
        """Counters since start, among them `bad` (not usable) and `retained` (stale values, ignored)."""


def _note(reasons: list[str], topic: str, reason: str) -> None:
    told = plain(f"{topic[:_SHOWN_TOPIC]}: {reason}")
    if len(reasons) < MAX_REASONS and told not in reasons:
        reasons.append(told)


class Windows:
    """The windows of a stream, as float arrays of `spec`'s name and shape. Raises ValueError when it does not fit."""

    def __init__(self, config: StreamConfig, spec: TensorSpec, device: str) -> None:
        self._requests: list[Request] = []
        # Its answers would go nowhere, and it is never given any.
        submit = self._requests.append
        self._stream = Stream(config, Signature((spec,), ()), device, submit, lambda *_: False, 1)
        self._decode = decoder(config.decode, Columns.of(config.fields, config.seq, config.time))
        self._spec, self._bad, self._no_key = spec, 0, f"the topic has no usable level {config.key_level}"
        self.reasons: list[str] = []
        self.facts: Mapping[str, Facts] = {spec.name: Facts(spec.wire_dtype, spec.shape)}

    def take(self, message: Message, on_sample: OnSample) -> None:
        """Give the message to the stream, and what the stream would submit to `on_sample`."""
        self._stream.on_message(message)
        for request in self._requests:
            window = np.frombuffer(request.payload, self._spec.wire_dtype).reshape(self._spec.shape)
            on_sample(request.origin, {self._spec.name: window})
        self._requests.clear()
        bad = self._stream.stats()["bad"]
        if bad > self._bad and len(self.reasons) < MAX_REASONS:
            # The stream only logs its reasons, once a minute.
            found = (item.reason for item in self._decode(message.payload) if isinstance(item, Bad))
            _note(self.reasons, message.topic, next(found, self._no_key))
        self._bad = bad

    def interrupted(self) -> None:
        """Throw away the windows that have begun: those of before and after would be patched together."""
        self._stream.reconnected(resumed=False)

    def counters(self) -> dict[str, int]:
        """Return what the stream counted, among it `interrupted`: windows thrown away at a lost connection."""
        stats = self._stream.stats()
        return {name: stats[name] for name in ("bad", "retained", *_STREAM_COUNTERS)}


class _Messages:
    """What the next two share: one message is one sample or none."""

    def __init__(self, facts_: Mapping[str, Facts]) -> None:
        self._counts = Counter({"bad": 0, "retained": 0})
        self.reasons: list[str] = []
        self.facts = facts_

    def take(self, message: Message, on_sample: OnSample) -> None:
        """Read one sample from the message."""
        if message.retain:
            self._counts["retained"] += 1
            return
        try:
            sample = self._read(message)
        except (RequestError, ValueError) as exc:
            self._counts["bad"] += 1
            _note(self.reasons, message.topic, exc.message if isinstance(exc, RequestError) else str(exc))
        else:
            on_sample(_key(message.topic), sample)

    def interrupted(self) -> None:
        """Nothing is patched: a message is whole."""

    def counters(self) -> dict[str, int]:
        """Return the counters."""
        return dict(self._counts)

    def _read(self, message: Message) -> dict[str, Array]:
        raise NotImplementedError


def _key(topic: str) -> str:
    """Return who sent it: the user of a request, else the topic."""
    try:
        return topics.parse_request(topic).user
    except ValueError:
        return topic


class Payloads(_Messages):
    """Requests to a model, read by the codec that is named, else by the one that each message names."""

    def __init__(self, signature: Signature, codec: str | None) -> None:
        super().__init__({spec.name: Facts(_recorded(spec), spec.shape) for spec in signature.inputs})
        self._signature, self._codec = signature, codec

    def _read(self, message: Message) -> dict[str, Array]:
        specs = self._signature.inputs
        into = [np.empty(spec.shape, spec.wire_dtype) for spec in specs]
        codecs.load(self._codec or _named_codec(message)).decode(message.payload, self._signature, into)
        return {spec.name: _real(array, spec) for spec, array in zip(specs, into, strict=True)}


def _recorded(spec: TensorSpec) -> np.dtype[Any]:
    return np.dtype(np.float32) if spec.scale and spec.wire_dtype.kind != "f" else spec.wire_dtype


def _real(array: Array, spec: TensorSpec) -> Array:
    """Return the values the model was trained on: quantized ones as real numbers."""
    return array if array.dtype == _recorded(spec) else quant.dequantize(array, spec)


def _named_codec(message: Message) -> str:
    try:
        named = topics.parse_request(message.topic).codec
    except ValueError:
        named = None
    found = named or codecs.name_for_content_type(message.content_type)
    if found is None:
        raise ValueError(f"no codec for content type {message.content_type!r}")
    return found


class Arrays(_Messages):
    """One .npy stream a message, under one name."""

    def __init__(self, name: str) -> None:
        super().__init__({})
        self._name = name
        self._first: Mapping[str, Facts] = {}

    def _read(self, message: Message) -> dict[str, Array]:
        view, rest = npyformat.read_array(memoryview(message.payload))
        if len(rest):
            raise ValueError(f"{len(rest)} bytes too many after the array")
        if not all_finite(view):
            raise ValueError("holds NaN or Inf")
        sample = {self._name: np.array(view, view.dtype.newbyteorder("="), order="C")}
        found = facts(sample)
        self._first = self._first or found
        if found != self._first:
            (dtype, shape), first = found[self._name], self._first[self._name]
            raise ValueError(f"{dtype} {list(shape)}, the first was {first.dtype} {list(first.shape)}")
        return sample


class Requests:
    """The requests that the daemon would run, each once, read by `source`.

    replies: bounds of the memory that knows a repeat. max_bytes: what is larger never enters the model's queue.
    """

    def __init__(self, source: Payloads | Arrays, replies: RepliesConfig, max_bytes: int) -> None:
        self._source, self._max_bytes, self._rejected = source, max_bytes, 0
        self._requests: list[Request] = []
        self._errors: list[str] = []
        memory = ReplyMemory(replies.memory_bytes, replies.memory_s)
        # Nothing is answered, so no deadline matters.
        self._intake = Intake(self._requests.append, self._publish, memory, lambda _: 1)
        self.reasons, self.facts = source.reasons, source.facts

    def take(self, message: Message, on_sample: OnSample) -> None:
        """Read the request if the daemon would run it, else count why not."""
        before = self._refused()
        self._intake.on_message(message)
        for request in self._requests:
            if request.size > self._max_bytes:
                self._errors.append(f"{request.size} bytes, the model's queue holds {self._max_bytes} in all")
            else:
                self._source.take(message, on_sample)
        self._requests.clear()
        self._rejected += len(self._errors)
        refused = [REFUSALS[reason] for reason, count in self._refused().items() if count > before[reason]]
        for reason in (*self._errors, *refused):
            _note(self.reasons, message.topic, reason)
        self._errors.clear()

    def interrupted(self) -> None:
        """Nothing is patched: a request is whole."""

    def counters(self) -> dict[str, int]:
        """Return the counters; `repeats`, and `refused_*`: nobody could be answered, for the intake's reasons."""
        counts, taken = self._source.counters(), self._intake.counters
        refused = {f"refused_{reason}": count for reason, count in self._refused().items()}
        mine = {"bad": counts["bad"] + self._rejected, "retained": taken["refused_retained"]}
        return {**counts, **mine, "repeats": taken["repeats"], **refused}

    def _refused(self) -> dict[str, int]:
        counts = self._intake.counters
        return {reason: counts[f"refused_{reason}"] for reason in REFUSALS if reason != "retained"}

    def _publish(self, reply: Message, _on_sent: OnSent | None) -> bool:
        """What the intake answers by itself is an error."""
        self._errors.append(RequestError.from_json(bytes(reply.payload)).message)
        return True
