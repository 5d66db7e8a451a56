"""Settings that are not as they are by default and yet change nothing: one line each, where it is and why.

A setting that is written down with its default value is not told: it changes nothing anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from edged.bundle import Bundle
from edged.commands._check_threads import Tried
from edged.config import Config, ModelConfig, StreamConfig
from edged.fitting import Fit


def notes(
    config: Config, bundles: Mapping[str, Bundle | None], ways: Mapping[str, Fit | None], threads: Mapping[str, Tried]
) -> Iterator[str]:
    """Yield the lines. bundles, ways: by model, None where one cannot be read or served."""
    yield from _of_device(config)
    yield from _of_network(config, threads["network"])
    for model in config.models:
        where, loaded, way = f"models.{model.name}", bundles[model.name], ways[model.name]
        yield from _told(where, _of_model(model, loaded, way))
        yield from _told(where, _of_priority(model, config, threads[where]))
    for stream in config.streams:
        yield from _told(f"streams.{stream.name}", _of_stream(stream))


def _told(where: str, found: Iterator[tuple[str, str]]) -> Iterator[str]:
    return (f"{where}.{setting}: {why}" for setting, why in found)


def _changed(section: Any, *names: str) -> Iterator[str]:
    """Yield those of a section's settings (all where none is named) that have another value than by default."""
    fields = dataclasses.fields(section)
    return (f.name for f in fields if (not names or f.name in names) and getattr(section, f.name) != f.default)


def _of_device(config: Config) -> Iterator[str]:
    if not any(stream.store for stream in config.streams):
        why = "has no effect: no stream has `store: true`"
        yield from (f"outbox.{name}: {why}" for name in _changed(config.outbox))
    if not config.updates.accept:
        why = "has no effect: updates.accept is false"
        yield from (f"updates.{name}: {why}" for name in _changed(config.updates, "max_bytes", "timeout_s"))
    for name, other in (("memory_s", "memory_bytes"), ("memory_bytes", "memory_s")):
        if getattr(config.replies, other) == 0:
            yield from (f"replies.{name}: has no effect: {other} is 0" for name in _changed(config.replies, name))
    if config.broker.protocol == "3.1.1":
        why = "has no effect: MQTT 3.1.1 (broker.protocol) leaves that to the broker"
        yield from (f"broker.{name}: {why}" for name in _changed(config.broker, "session_expiry_s"))
    if config.clients.max_payload_bytes > max(model.queue.max_bytes for model in config.models):
        yield from (
            f"clients.{name}: has no effect: no model's queue.max_bytes takes so much"
            for name in _changed(config.clients, "max_payload_bytes")
        )


def _of_network(config: Config, found: Tried) -> Iterator[str]:
    if config.network.realtime in ("fifo", "nice") and found.refused:
        yield f"network.realtime: has no effect: {found.priority} for this user"


def _of_model(model: ModelConfig, loaded: Bundle | None, way: Fit | None) -> Iterator[tuple[str, str]]:
    if model.batch.max_batch_size == 1:
        why = "has no effect: max_batch_size is 1"
        yield from ((f"batch.{name}", why) for name in _changed(model.batch, "batch_timeout_micros"))
    if loaded is not None and not loaded.manifest.stateful:
        yield from ((f"state.{name}", "has no effect: the model keeps no state") for name in _changed(model.state))
    if way is not None and way.only_cpu:
        why = "has no effect: no delegate but the CPU may serve"
        yield from ((f"failover.{name}", why) for name in _changed(model.failover))


def _of_priority(model: ModelConfig, config: Config, found: Tried) -> Iterator[tuple[str, str]]:
    if model.realtime in ("fifo", "nice") and found.refused:
        yield "realtime", f"has no effect: {found.priority} for this user"
    for name in _changed(model, "priority"):
        if model.realtime == "off":
            yield name, "has no effect: its realtime is off"
        elif all(other.priority == model.priority for other in config.models):
            yield name, "has no effect: no model has another one"


def _of_stream(stream: StreamConfig) -> Iterator[tuple[str, str]]:
    if stream.key_level is None:
        why = "has no effect: without key_level all sensors are one"
        yield from ((name, why) for name in _changed(stream, "max_keys"))
