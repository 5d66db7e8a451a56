"""The configuration of one device: frozen dataclasses, each key with its help text, and how a file becomes one.

`config_reference` writes every key down, from these classes. Names of keys are a public contract.
Relative paths are relative to the configuration file. No secret is ever held here.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from edged import filters, topics, yamlload
from edged.checks import at_least, at_most, hint, not_empty
from edged.config_broker import BrokerConfig
from edged.config_device import (
    ClientsConfig,
    LocalConfig,
    MetricsConfig,
    NetworkConfig,
    OutboxConfig,
    RepliesConfig,
    StatusConfig,
    UpdatesConfig,
)
from edged.config_models import (
    BatchConfig,
    FailoverConfig,
    ModelConfig,
    QueueConfig,
    SelectionConfig,
    StateConfig,
    with_library_below,
)
from edged.config_streams import LevelName, StreamConfig, WindowConfig
from edged.errors import ConfigError
from edged.schema import Problem

__all__ = [
    "BatchConfig", "BrokerConfig", "ClientsConfig", "Config", "FailoverConfig", "LocalConfig", "MetricsConfig",
    "ModelConfig", "NetworkConfig", "OutboxConfig", "QueueConfig", "RepliesConfig", "SelectionConfig", "StateConfig",
    "StatusConfig", "StreamConfig", "UpdatesConfig", "WindowConfig", "diff", "load", "loads",
]  # fmt: skip


def default_state_dir() -> Path:
    """Return systemd's `$STATE_DIRECTORY` (its first), else `edged` in the XDG state home."""
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    xdg = os.environ.get("XDG_STATE_HOME")
    try:
        return (Path(xdg) if xdg else Path.home() / ".local/state") / "edged"
    except RuntimeError:  # a user without a home
        return Path("/var/lib/edged")


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole file."""

    device: LevelName = field(metadata={"help": "Name of this box in every topic.", "example": "press-07"})
    broker: BrokerConfig = field(metadata={"help": "The MQTT broker."})
    models: Annotated[tuple[ModelConfig, ...], not_empty] = field(metadata={"help": "The models to serve."})
    streams: tuple[StreamConfig, ...] = field(default=(), metadata={"help": "Sensor topics that feed a model."})
    metrics: MetricsConfig = field(default=MetricsConfig(), metadata={"help": "Published figures."})
    replies: RepliesConfig = field(default=RepliesConfig(), metadata={"help": "Memory that answers repeated requests."})
    clients: ClientsConfig = field(default=ClientsConfig(), metadata={"help": "What one user may ask for at once."})
    local: LocalConfig | None = field(
        default=None, metadata={"help": "Producers on this box that hand payloads over in shared memory."}
    )
    outbox: OutboxConfig = field(
        default=OutboxConfig(), metadata={"help": "Stream answers kept on disk while there is no broker."}
    )
    updates: UpdatesConfig = field(
        default=UpdatesConfig(), metadata={"help": "Models that a message on desired/models replaces while it runs."}
    )
    network: NetworkConfig = field(default=NetworkConfig(), metadata={"help": "The thread that reads and writes MQTT."})
    memory_lock: Literal["auto", "off"] = field(
        default="auto", metadata={"help": "Keep the daemon's memory from being swapped out, where that is permitted."}
    )
    selection: SelectionConfig = field(
        default=SelectionConfig(), metadata={"help": "Measuring of delegates, at the first start with a bundle."}
    )
    status: StatusConfig = field(default=StatusConfig(), metadata={"help": "When an inference counts as stuck."})
    state_dir: Path = field(
        default_factory=default_state_dir,
        metadata={
            "help": "Where the daemon keeps what it measured; $STATE_DIRECTORY, else ~/.local/state/edged.",
            "example": "/var/lib/edged",
        },
    )
    drain_timeout_s: Annotated[float, at_least(0), at_most(3600)] = field(
        default=5.0, metadata={"help": "Seconds to finish what was admitted when the daemon stops."}
    )
    log_level: Literal["debug", "info", "warning", "error"] = field(
        default="info", metadata={"help": "Least severe message that is logged."}
    )

    @property
    def client_id(self) -> str:
        """The MQTT client id: stable over restarts."""
        return self.broker.client_id or f"edged-{self.device}"

    @staticmethod
    def raw_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield names given twice and streams whose model does not exist, whatever else is wrong."""
        models, streams = _column(value, "models", "name"), _column(value, "streams", "name")
        for key, names in (("models", models), ("streams", streams)):
            for index, name in names.items():
                if name in [names[i] for i in names if i < index]:
                    yield Problem(f"{key}[{index}].name", f"{name!r} is the name of another one")
        for index, model in _column(value, "streams", "model").items():
            if models and model not in models.values():
                yield Problem(f"streams[{index}].model", f"no model is called {model!r}{hint(model, models.values())}")

    def problems(self) -> Iterator[Problem]:
        """Yield streams that would feed on the daemon's own messages, or get a sample twice."""
        for index, stream in enumerate(self.streams):
            wrong = next(self._topic_problems(index, stream), None)
            if wrong is not None:
                yield Problem(f"streams[{index}].topic", wrong)
        if wrong := self._network_behind():
            yield Problem("network.realtime", wrong)

    def _network_behind(self) -> str:
        """Return what is wrong where models would run before the network thread, which all of them wait for."""
        urgency = ("off", "nice", "fifo")
        least = urgency.index(self.network.realtime) if self.network.realtime != "auto" else len(urgency)
        for model in self.models:
            if urgency.index(model.realtime.replace("auto", "nice")) > least:
                return f"{self.network.realtime} is behind {model.realtime} of model {model.name!r}: its requests wait"
        return ""

    def _topic_problems(self, index: int, reader: StreamConfig) -> Iterator[str]:
        for writer in self.streams:
            if filters.overlap(reader.topic, writer.outputs(self.device)):
                whose = "the stream's own answers" if writer is reader else f"the answers of the stream {writer.name!r}"
                yield f"also matches {whose}, which can be an endless loop"
        own = {"requests": topics.request_filter(self.device)}
        leaves = ("status", "metrics", "desired/models", "reported/models", "cmd/+", "event/+")
        own |= {f"{leaf.partition('/')[0]} messages": topics.device(self.device, leaf) for leaf in leaves}
        for what, filter_ in own.items():
            if filters.overlap(reader.topic, filter_):
                yield f"also matches the device's {what} ({filter_}), which are no samples"
        for other in self.streams[:index]:
            if other.topic != reader.topic and filters.overlap(reader.topic, other.topic):
                # MQTT 5.0, 3.3.4: a broker may deliver a message once for each subscription that matches.
                what = f"overlaps the topic {other.topic!r} of the stream {other.name!r}, so a sample may come twice"
                yield f"{what}: give both streams the same topic, or topics that do not overlap"


def _column(value: Mapping[str, Any], key: str, name: str) -> dict[int, str]:
    """Return index → text of `name` in the plain list `value[key]`, leaving out whatever is no text."""
    items = value.get(key)
    rows = enumerate(items if isinstance(items, list) else ())
    return {i: row[name] for i, row in rows if isinstance(row, Mapping) and isinstance(row.get(name), str)}


def load(path: Path) -> Config:
    """Read a configuration file. Raises ConfigError (InvalidConfigError with every problem when the text is wrong)."""
    try:
        # A FIFO would be waited for, and a device may never end.
        if path.exists() and not path.is_file():
            raise ConfigError(str(path), "is not a regular file", "a directory, a pipe or a device is no configuration")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as exc:
        raise ConfigError(str(path), "no such file", "`edged sample minimal` prints one to start from") from exc
    except OSError as exc:
        raise ConfigError(str(path), f"cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(str(path), f"not UTF-8 text (byte {exc.start})") from exc
    return loads(text, str(path), path.absolute().parent)


def loads(text: str, source: str, base: Path) -> Config:
    """Read a configuration from text; `source` is the name in messages, `base` what relative paths are relative to."""
    config: Config = _resolved(yamlload.load(text, Config, source), base)
    return config


def _resolved(value: Any, base: Path) -> Any:
    """Return `value` with every path in it absolute."""
    if isinstance(value, Path):
        return base / value
    if isinstance(value, tuple):
        return tuple(_resolved(item, base) for item in value)
    if isinstance(value, Mapping):  # delegates by name, each with its options
        return {name: with_library_below(base, given) for name, given in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return dataclasses.replace(
        value, **{f.name: _resolved(getattr(value, f.name), base) for f in dataclasses.fields(value)}
    )


def diff(old: Config, new: Config) -> list[str]:
    """Return what differs, a line each: `models[har].threads: 1 → 2`. List items with a name are matched by it."""
    return list(_differences("", old, new))


def _differences(path: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    before, after = _parts(old), _parts(new)
    if before is None or after is None or type(old) is not type(new):
        yield f"{path}: {_told(old)} → {_told(new)}"
        return
    for key in [*before, *(key for key in after if key not in before)]:
        where = f"{path}{key}" if key.startswith("[") or not path else f"{path}.{key}"
        if key not in after:
            yield f"{where}: removed"
        elif key not in before:
            yield f"{where}: added"
        else:
            yield from _differences(where, before[key], after[key])


def _parts(value: Any) -> dict[str, Any] | None:
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and value and all(hasattr(item, "name") for item in value):
        return {f"[{item.name}]": item for item in value}
    return {} if value == () else None


def _told(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return "none" if value is None else str(value)
