"""One message → the samples in it. Each source counts what it cannot use, and keeps the first few reasons in words.

Windows   what a stream of the daemon would feed its model: the same code cuts them
Payloads  what a request carries: the same codecs read it, into arrays of the model's inputs
Arrays    .npy payloads of a model that is not known: the first one decides dtype and shape
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from edged import codecs, npyformat, quant, topics
from edged.bundle import Signature, TensorSpec
from edged.codecs.common import all_finite
from edged.config_streams import StreamConfig
from edged.errors import RequestError
from edged.recording.keep import Array, Sample
from edged.recording.npzfile import facts
from edged.request import Request
from edged.shown import plain
from edged.streams import Stream
from edged.streams.samples import Bad, Columns, decoder
from edged.transports.base import Message

# Different reasons kept in words; all are counted.
MAX_REASONS = 5
_SHOWN_TOPIC = 80
_STREAM_COUNTERS = ("samples", "gaps", "missed", "duplicates", "restarts", "evicted")

OnSample = Callable[[str, Sample], None]


class Source(Protocol):
    """Turns messages into samples. reasons: why some could not be used, with their topics; at most `MAX_REASONS`."""

    reasons: list[str]

    def take(self, message: Message, on_sample: OnSample) -> None:
        """Call `on_sample(key, sample)` for every sample that the message completes; never raises."""

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

    def counters(self) -> dict[str, int]:
        """Return what the stream counted."""
        stats = self._stream.stats()
        return {name: stats[name] for name in ("bad", "retained", *_STREAM_COUNTERS)}


class _Messages:
    """What the other two share: one message is one sample or none."""

    def __init__(self) -> None:
        self._counts = Counter({"bad": 0, "retained": 0})
        self.reasons: list[str] = []

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
        super().__init__()
        self._signature, self._codec = signature, codec

    def _read(self, message: Message) -> dict[str, Array]:
        specs = self._signature.inputs
        into = [np.empty(spec.shape, spec.wire_dtype) for spec in specs]
        codecs.load(self._codec or _named_codec(message)).decode(message.payload, self._signature, into)
        return {spec.name: _real(array, spec) for spec, array in zip(specs, into, strict=True)}


def _real(array: Array, spec: TensorSpec) -> Array:
    """Return the values the model was trained on: quantized ones as real numbers."""
    return quant.dequantize(array, spec) if spec.scale and array.dtype.kind != "f" else array


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
        super().__init__()
        self._name = name
        self._first: Mapping[str, Any] = {}

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
