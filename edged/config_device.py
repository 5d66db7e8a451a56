"""The parts of the configuration that tell of the device as a whole: figures, replies, clients, producers on the box,
answers kept while there is no broker, and models that are replaced while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from edged import brokerurl
from edged.checks import above, at_least, at_most, byte_size, not_empty, show
from edged.config_models import DAY_S, MAX_BYTES, ByteSize, Cpus
from edged.config_streams import Millis
from edged.schema import Problem


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """The metrics topic, and the same figures for Prometheus."""

    interval_s: Annotated[float, at_least(0.1), at_most(DAY_S)] = field(
        default=10.0, metadata={"help": "Seconds between two messages on the metrics topic."}
    )
    prometheus: int | Annotated[str, not_empty] | None = field(
        default=None,
        metadata={
            "help": "[host:]port (1 to 65535) to serve the same figures on for Prometheus; loopback where no host is "
            "given.",
            "example": "127.0.0.1:9464",
        },
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of `prometheus`; None where nothing is served, or what is given is no address."""
        host, _, port = str("" if self.prometheus is None else self.prometheus).rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        valid = port.isascii() and port.isdigit() and len(port) <= len("65535") and 0 < int(port) <= 65_535  # noqa: PLR2004
        return (host or "127.0.0.1", int(port)) if valid else None

    def problems(self) -> Iterator[Problem]:
        """Yield what is no address."""
        if self.prometheus is not None and self.address is None:
            yield Problem("prometheus", f"expected [host:]port, the port 1 to 65535, got {show(self.prometheus)}")
        elif self.address is not None and (wrong := brokerurl.host_problem(self.address[0])):
            yield Problem("prometheus", wrong)


@dataclass(frozen=True, kw_only=True)
class RepliesConfig:
    """The memory of replies that answers a repeated request without running it again."""

    memory_bytes: Annotated[int, byte_size, at_least(0), at_most(MAX_BYTES)] = field(
        default=16 << 20, metadata={"help": "Bytes of replies kept; 0 keeps none."}
    )
    memory_s: Annotated[float, at_least(0), at_most(DAY_S)] = field(
        default=120.0, metadata={"help": "Seconds a reply is kept."}
    )


@dataclass(frozen=True, kw_only=True)
class StatusConfig:
    """When a running inference counts as stuck: after a multiple of the model's P99, but not before the floor."""

    stuck_factor: Annotated[float, above(1), at_most(1_000_000)] = field(
        default=20.0, metadata={"help": "Times the model's P99."}
    )
    stuck_floor_ms: Millis = field(default=5000, metadata={"help": "Milliseconds at least."})


@dataclass(frozen=True, kw_only=True)
class ClientsConfig:
    """What one user, the `<user>` level of the request topic, may ask for; a model's queue bounds them all together."""

    max_requests: Annotated[int, at_least(1), at_most(1_000_000)] | None = field(
        default=None, metadata={"help": "Requests of one user that may be unanswered at a time.", "example": 32}
    )
    max_payload_bytes: ByteSize = field(default=64 << 20, metadata={"help": "Bytes of one request's payload."})


@dataclass(frozen=True, kw_only=True)
class LocalConfig:
    """Where producers on this box connect, and the shared memory that each of them gets."""

    socket: Path = field(metadata={"help": "The Unix socket.", "example": "/run/edged/edged.sock"})
    group: Annotated[str, not_empty] | None = field(
        default=None,
        metadata={"help": "Group whose members may connect too, beside the daemon's own user.", "example": "video"},
    )
    slots: Annotated[int, at_least(1), at_most(1024)] = field(
        default=4, metadata={"help": "Payloads that one producer may have on their way."}
    )
    slot_bytes: ByteSize = field(
        default=4 << 20,
        metadata={"help": "Bytes of the largest payload; each producer connected takes slots times as many of memory."},
    )
    max_producers: Annotated[int, at_least(1), at_most(1024)] = field(
        default=8, metadata={"help": "Producers connected at a time."}
    )


@dataclass(frozen=True, kw_only=True)
class OutboxConfig:
    """Answers of streams with `store: true`, kept in state_dir until the broker has them."""

    max_bytes: Annotated[int, byte_size, at_least(64 << 10), at_most(MAX_BYTES)] = field(
        default=64 << 20,
        metadata={"help": "Bytes on disk, at least 64KiB; beyond, the oldest answers are dropped, a 64th at a time."},
    )
    max_age_s: Annotated[float, above(0), at_most(365 * DAY_S)] = field(
        default=float(DAY_S), metadata={"help": "Seconds after which an answer is not sent any more."}
    )


@dataclass(frozen=True, kw_only=True)
class UpdatesConfig:
    """Bundles named on the topic desired/models: fetched, verified, tried, and served in place of the old ones."""

    accept: bool = field(
        default=True, metadata={"help": "Whether they are; the broker's access rules say who may write that topic."}
    )
    max_bytes: ByteSize = field(default=1 << 30, metadata={"help": "Bytes of the largest bundle."})
    timeout_s: Annotated[float, at_least(1), at_most(DAY_S)] = field(
        default=600.0, metadata={"help": "Seconds to fetch one, with all tries."}
    )


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Where the network thread runs, and before whom."""

    cpus: Cpus = field(default=(), metadata={"help": "CPUs it is pinned to; [] leaves it to the system."})
    realtime: Literal["auto", "fifo", "nice", "off"] = field(
        default="auto",
        metadata={
            "help": "Its priority, at least that of the models' threads; auto takes the best that is permitted, fifo "
            "where a model has it, and off where all have."
        },
    )
