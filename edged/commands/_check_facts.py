"""What a configuration would run, as JSON has it: every section, what it means here, and no secret."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edged import topics
from edged.bundle import Bundle
from edged.commands import _text
from edged.commands._check_threads import Tried
from edged.config import Config, ModelConfig, StreamConfig
from edged.fitting import Fit


def facts(
    config: Config, bundles: Mapping[str, Bundle | None], ways: Mapping[str, Fit | None], threads: Mapping[str, Tried]
) -> dict[str, Any]:
    """Return the facts. bundles, ways: by model, None where one cannot be read or served."""
    models = [_model(one, bundles[one.name], ways[one.name], threads[f"models.{one.name}"]) for one in config.models]
    stored = any(stream.store for stream in config.streams)
    return {
        "device": config.device,
        "broker": {**_plain(config.broker), "client_id": config.client_id},
        "models": models,
        "streams": [_stream(stream, config) for stream in config.streams],
        "local": _plain(config.local),
        "metrics": _plain(config.metrics) | {"address": config.metrics.address},
        "outbox": _plain(config.outbox) if stored else None,
        **{name: _plain(getattr(config, name)) for name in ("replies", "clients", "updates", "selection", "status")},
        "network": _plain(config.network) | {"scheduling": threads["network"].priority},
        "memory_lock": config.memory_lock,
        "state_dir": str(config.state_dir),
        "drain_timeout_s": config.drain_timeout_s,
        "log_level": config.log_level,
    }


def _plain(section: Any) -> Any:
    """Return a part of the configuration as JSON has it."""
    if dataclasses.is_dataclass(section):
        return {field.name: _plain(getattr(section, field.name)) for field in dataclasses.fields(section)}
    if isinstance(section, tuple):
        return [_plain(item) for item in section]
    return str(section) if isinstance(section, Path) else section


def _model(model: ModelConfig, loaded: Bundle | None, way: Fit | None, thread: Tried) -> dict[str, Any]:
    stateful = loaded is not None and loaded.manifest.stateful
    return {
        **{field.name: _plain(getattr(model, field.name)) for field in dataclasses.fields(model)},
        "content": None if loaded is None else _bundle(loaded, way),
        "delegates": "auto" if model.wanted is None else [_delegate(*one) for one in model.wanted],
        "scheduling": thread.priority,
        "batch": _plain(model.batch) if model.batch.max_batch_size > 1 else None,
        "state": _plain(model.state) if stateful else None,
        "failover": None if way is not None and way.only_cpu else _plain(model.failover),
    }


def _bundle(loaded: Bundle, way: Fit | None) -> dict[str, Any]:
    manifest = loaded.manifest
    wire = loaded.signature if way is None else way.signature  # what a requester sends and gets
    return {
        "name": manifest.name,
        "version": manifest.version,
        "model_sha256": loaded.model_sha256,
        "quantize": manifest.quantize,
        "inputs": [_text.tensor_facts(spec) for spec in wire.inputs],
        "outputs": [_text.tensor_facts(spec) for spec in wire.outputs],
    }


def _delegate(name: str, options: Mapping[str, Any]) -> str | dict[str, Any]:
    """Return it as a configuration has it."""
    return {name: dict(options)} if options else name


def _stream(stream: StreamConfig, config: Config) -> dict[str, Any]:
    key = [] if stream.key_level is None else ["<key>"]
    return {**_plain(stream), "output_topic": topics.device(config.device, "out", stream.name, *key)}
