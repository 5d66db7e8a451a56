"""What is to be recorded: a configuration and a person's wishes → the subscription and the source of samples.

Without --codec, --shape and --model it is windows: those of a stream of the configuration, cut as the daemon cuts
them. With one of the three it is payloads, of --topic or of the requests to --model.
A bundle is used when it can be read; the first calibration of a model is recorded before there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edged import bundle, codecs, filters, topics
from edged.bundle import Signature, TensorSpec
from edged.checks import hint
from edged.config import Config, ModelConfig, StreamConfig
from edged.errors import BadDataError, ConfigError, RequestError, UnavailableError, UsageError
from edged.recording import npzfile
from edged.recording.source import Arrays, Payloads, Requests, Source, Windows
from edged.transports.base import Subscription

# The name of an array where no bundle and no person tells it; a model with one input takes any.
UNNAMED = "input"
DTYPES = ("float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "bool")
_IMAGES = ("jpeg", "png")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The command line's part of it. shapes: input name ("" where none was given) → shape with the batch.

    dtype: "" where none was given: float32.
    """

    stream: str = ""
    topic: str = ""
    model: str = ""
    codec: str = ""
    name: str = ""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtype: str = ""

    @property
    def payloads(self) -> bool:
        """Whether it is payloads, not a stream's windows."""
        return bool(self.model or self.codec) or (bool(self.shapes) and not self.stream)


@dataclass(frozen=True)
class Plan:
    """subscription: what to ask the broker for. topic: the filter of what counts among it. what: for a person.

    names: of the arrays. stream: the name of the stream that cuts windows, "" for payloads.
    """

    what: str
    subscription: Subscription
    topic: str
    source: Source
    names: tuple[str, ...]
    stream: str = ""
    notes: tuple[str, ...] = ()


def make(config: Config, wish: Wish) -> Plan:
    """Raises UsageError for wishes that do not go together, ConfigError where the configuration cannot serve them."""
    if wish.topic and (problem := filters.problem(wish.topic)):
        raise UsageError("--topic", problem)
    _check_names(wish)
    if wish.dtype and (not wish.payloads or not wish.shapes):
        what = "says what payloads of --shape hold: windows are float32" if not wish.payloads else "needs --shape"
        raise UsageError("--dtype", what)
    if wish.model:
        _model(config, wish.model)
    made = _payloads(config, wish) if wish.payloads else _windows(config, wish)
    for name in made.names:
        if problem := npzfile.name_problem(name):
            raise BadDataError("the bundle's input", problem)
    return made


def _check_names(wish: Wish) -> None:
    for option, name in (("--input", wish.name), *(("--shape", name) for name in wish.shapes)):
        if name in npzfile.LABEL_KEYS:
            what = f"{name!r} is a name that `edged convert --eval` takes for labels"
            raise UsageError(option, what, "a model with one input takes any name")
        if name and (problem := npzfile.name_problem(name)):
            raise UsageError(option, problem)
    if wish.name and any(name for name in wish.shapes):
        raise UsageError("--input", "and --shape both name the array", "give the name once")


def _windows(config: Config, wish: Wish) -> Plan:
    stream = _stream(config, wish)
    spec, notes = _window_spec(config, stream, wish)
    try:
        source = Windows(stream, spec, config.device)
    except ValueError as exc:
        raise ConfigError(f"streams.{stream.name}", str(exc), "--shape gives the input's shape") from exc
    asked = Subscription(wish.topic or stream.topic, stream.qos)
    return Plan(f"windows of stream {stream.name}", asked, stream.topic, source, (spec.name,), stream.name, notes)


def _stream(config: Config, wish: Wish) -> StreamConfig:
    names = [stream.name for stream in config.streams]
    if wish.stream and wish.stream not in names:
        raise UsageError("--stream", f"no stream is called {wish.stream!r}{hint(wish.stream, names)}")
    found = [s for s in config.streams if wish.stream in ("", s.name)]
    found = [s for s in found if not wish.topic or filters.overlap(s.topic, wish.topic)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError("--stream", f"which of {', '.join(s.name for s in found)}?", "name one")
    what = f"no stream of the configuration takes {wish.topic!r}" if wish.topic else "the configuration has no stream"
    raise UsageError("--topic", what, "--codec json --shape 1,100,6 records payloads, --model NAME requests")


def _window_spec(config: Config, stream: StreamConfig, wish: Wish) -> tuple[TensorSpec, tuple[str, ...]]:
    """Return the array's name and shape, and what there is to say: by the wish, else by the bundle, else as cut."""
    marks = (stream.seq, stream.time)
    features = sum(name not in marks for name in stream.fields)
    length = stream.window.length
    plain = (1, length, features) if length > 1 else (1, features)
    name, shape = _named(wish)
    if wish.name or wish.shapes:
        return _spec(name, "float32", shape or plain), ()
    signature, trouble = _signature(_model(config, stream.model))
    if signature is None or len(signature.inputs) != 1:
        note = (
            f"{trouble or 'the model has several inputs'}: the array is called {UNNAMED!r}, its shape is {list(plain)}"
        )
        return TensorSpec(UNNAMED, "float32", plain), (note,)
    spec = signature.inputs[0]
    # Real values, also where clients send quantized ones: they are what calibrates.
    dtype = "float32" if spec.scale else spec.dtype
    return TensorSpec(spec.name, dtype, spec.shape), ()


def _payloads(config: Config, wish: Wish) -> Plan:
    if wish.stream:
        raise UsageError("--stream", "records windows: it does not go with --codec and --model")
    if not wish.topic and not wish.model:
        raise UsageError("--topic", "is not given", "which topics carry the payloads; or --model, for its requests")
    if wish.codec:
        _check_codec(wish.codec)
    source, notes = _payload_source(config, wish)
    names = tuple(source.facts) or (wish.name or UNNAMED,)
    if wish.topic:
        return Plan("payloads", Subscription(wish.topic, 1), wish.topic, source, names, notes=notes)
    model = _model(config, wish.model)
    topic = topics.device(config.device, "req", model.name, "#")
    requests = Requests(source, config.replies, model.queue.max_bytes)
    return Plan(f"requests to model {model.name}", Subscription(topic, 1), topic, requests, names, notes=notes)


def _payload_source(config: Config, wish: Wish) -> tuple[Payloads | Arrays, tuple[str, ...]]:
    """Return what reads the payloads, and what there is to say of them."""
    signature, trouble = _wanted_signature(config, wish)
    if signature is not None:
        return Payloads(_usable(signature, wish), wish.codec or None), _quantized_notes(signature)
    if wish.codec != "npy":
        raise UsageError("--shape", f"is needed: {trouble}", "the input's shape with the batch, as --shape x=1,100,6")
    return Arrays(wish.name or UNNAMED), ()


def _usable(signature: Signature, wish: Wish) -> Signature:
    if wish.codec in _IMAGES and signature.preprocess is None:
        raise UsageError("--codec", f"{wish.codec} needs a bundle that says how an image becomes the input")
    return signature


def _wanted_signature(config: Config, wish: Wish) -> tuple[Signature | None, str]:
    if wish.shapes:
        named = wish.shapes.items()
        specs = [_spec(name or wish.name or UNNAMED, wish.dtype or "float32", shape) for name, shape in named]
        return Signature(tuple(specs), ()), ""
    names = [model.name for model in config.models]
    name = wish.model or (names[0] if len(names) == 1 and not wish.name else "")
    if not name:
        return None, f"which of the models {', '.join(names)} is not said"
    signature, trouble = _signature(_model(config, name))
    if signature is not None and wish.name and [spec.name for spec in signature.inputs] != [wish.name]:
        inputs = ", ".join(spec.name for spec in signature.inputs)
        raise UsageError("--input", f"model {name} names its inputs itself: {inputs}", "leave it out")
    return signature, trouble


def _quantized_notes(signature: Signature) -> tuple[str, ...]:
    names = [spec.name for spec in signature.inputs if spec.scale and spec.wire_dtype.kind != "f"]
    what = "payloads are quantized: values beyond the range of that model are recorded as its limits"
    return tuple(f"input {name!r}: {what}" for name in names)


def _check_codec(name: str) -> None:
    if name not in codecs.NAMES:
        what = f"unknown codec {name!r}{hint(name, codecs.NAMES)}"
        raise UsageError("--codec", what, f"one of {', '.join(codecs.NAMES)}")
    try:
        codecs.load(name)
    except RequestError as exc:
        raise UnavailableError("--codec", exc.message) from exc


def _named(wish: Wish) -> tuple[str, tuple[int, ...]]:
    if len(wish.shapes) > 1:
        raise UsageError("--shape", "a stream feeds one input")
    name, shape = next(iter(wish.shapes.items()), ("", ()))
    return wish.name or name or UNNAMED, shape


def _spec(name: str, dtype: Any, shape: tuple[int, ...]) -> TensorSpec:
    spec = TensorSpec(name, dtype, shape)
    for problem in spec.problems():
        raise UsageError("--shape", problem.message)
    return spec


def _model(config: Config, name: str) -> ModelConfig:
    names = [model.name for model in config.models]
    if name not in names:
        raise UsageError("--model", f"no model is called {name!r}{hint(name, names)}", f"there are {', '.join(names)}")
    return config.models[names.index(name)]


def _signature(model: ModelConfig) -> tuple[Signature | None, str]:
    """Return what the bundle says of the model, or why it says nothing."""
    try:
        return bundle.read(model.bundle).signature, ""
    except BadDataError as exc:
        return None, f"the bundle of {model.name} cannot be read ({exc.what})"
