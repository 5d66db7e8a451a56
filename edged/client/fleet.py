"""What is known of every device from its status and metrics messages, and the latency of all of them together.

Nothing received is trusted: what cannot be read is counted in `ignored` and changes nothing. A P99 over devices comes
from their merged histograms; percentiles cannot be averaged.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from edged import topics
from edged.client.metrics import Metrics, ModelMetrics, Percentiles, parse_metrics, percentiles_of
from edged.client.status import Status, believed, parse_status
from edged.clock import NS_PER_S, now_ns
from edged.contract import GONE
from edged.latency import Histogram
from edged.transports.base import Message

# More than one broker carries; a bound on what a stranger's messages can make this process hold.
MAX_DEVICES = 10_000
STALE_INTERVALS = 3
DEFAULT_INTERVAL_S = 10.0
UNKNOWN = "unknown"


@dataclass
class Device:
    """One device. before: the metrics message before the last, of the same boot. seen_ns: monotonic ns of its last
    message, 0 when only a retained one came (it may be of any age)."""

    name: str
    born_ns: int
    status: Status | None = None
    metrics: Metrics | None = None
    before: Metrics | None = None
    seen_ns: int = 0

    @property
    def state(self) -> str:
        """The state last told; unknown when it is the will of a boot which a later one has replaced."""
        if self.status is None or not believed(self.status, self._measured()):
            return UNKNOWN
        return self.status.state.value

    def boots(self) -> frozenset[str]:
        """The boots that may be the current one: of the last status that was not a will, of the last metrics."""
        return self._measured() | (self.status.boots if self.status is not None else frozenset())

    def _measured(self) -> frozenset[str]:
        return frozenset() if self.metrics is None else frozenset({self.metrics.boot})

    def stale(self, now: int) -> bool:
        """Whether metrics are overdue from a device that should be there."""
        if self.state in GONE:
            return False
        interval_s = (self.metrics and self.metrics.interval_s) or DEFAULT_INTERVAL_S
        last_ns = self.metrics.received_ns if self.metrics is not None else self.born_ns
        return now - last_ns > STALE_INTERVALS * interval_s * NS_PER_S


@dataclass(frozen=True)
class FleetLatency:
    """Latency of all requests of `devices` devices."""

    devices: int
    latency: Percentiles


@dataclass
class Fleet:
    """The devices by name. Messages come in on the transport's thread, readers take `snapshot`."""

    only: frozenset[str] = frozenset()
    ignored: Counter[str] = field(default_factory=Counter)
    _devices: dict[str, Device] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def filters(self) -> list[str]:
        """The topic filters to subscribe to."""
        return [topics.device(name, leaf) for name in sorted(self.only) or ["+"] for leaf in ("status", "metrics")]

    def take(self, message: Message) -> None:
        """Note one message."""
        levels = message.topic.split("/")
        if len(levels) != 5 or message.topic != topics.device(levels[3], levels[4]):  # noqa: PLR2004 - edged/v1/dev/x/y
            self.ignored["topic"] += 1
            return
        now = now_ns()
        note = self._note_status if levels[4] == "status" else self._note_metrics
        with self._lock:
            device = self._devices.get(levels[3]) or Device(levels[3], now)
            if note(device, message, now):
                self._keep(device)
                device.seen_ns = device.seen_ns if message.retain else now

    def _keep(self, device: Device) -> None:
        if device.name in self._devices or len(self._devices) < MAX_DEVICES:
            self._devices[device.name] = device
        else:
            self.ignored["devices"] += 1

    def _note_status(self, device: Device, message: Message, now: int) -> bool:
        if not message.payload:
            # A cleared retained status: the device was taken out of the fleet.
            self._devices.pop(device.name, None)
            return False
        status = parse_status(message.payload, now)
        if status is None:
            self.ignored["status"] += 1
            return False
        if not believed(status, device.boots()):
            self.ignored["old_will"] += 1
            return False
        device.status = status
        return True

    def _note_metrics(self, device: Device, message: Message, now: int) -> bool:
        metrics = parse_metrics(message.payload, now)
        if metrics is None:
            self.ignored["metrics"] += 1
            return False
        if metrics.bad_histograms:
            self.ignored["histogram"] += metrics.bad_histograms
        same_boot = device.metrics is not None and device.metrics.boot == metrics.boot
        device.before, device.metrics = (device.metrics if same_boot else None), metrics
        return True

    def snapshot(self) -> list[Device]:
        """Copies of the devices, by name."""
        with self._lock:
            return [dataclasses.replace(self._devices[name]) for name in sorted(self._devices)]


def since_start(devices: Iterable[Device]) -> FleetLatency:
    """All requests that the devices answered since they started."""
    return _together([_histograms(device.metrics) for device in devices])


def last_interval(devices: Iterable[Device]) -> FleetLatency:
    """All requests answered between the last two metrics messages of each device.

    One message is enough where it says itself that its interval holds all requests since start, or none.
    """
    return _together([_recent(device) for device in devices])


def _together(found: Iterable[Sequence[Histogram]]) -> FleetLatency:
    merged, count = Histogram(), 0
    for histograms in found:
        count += bool(histograms)
        for histogram in histograms:
            merged.merge(histogram)
    return FleetLatency(count, percentiles_of(merged))


def _histograms(metrics: Metrics | None) -> list[Histogram]:
    models = metrics.models.values() if metrics is not None else ()
    return [model.histogram for model in models if model.histogram is not None]


def _recent(device: Device) -> list[Histogram]:
    if device.metrics is None:
        return []
    before = device.before.models if device.before is not None else {}
    found = (_new(model, before.get(name)) for name, model in device.metrics.models.items())
    return [histogram for histogram in found if histogram is not None]


def _new(model: ModelMetrics, before: ModelMetrics | None) -> Histogram | None:
    if model.histogram is None:
        return None
    if before is not None and before.histogram is not None:
        return _difference(model.histogram, before.histogram)
    told = model.interval.latency.get("total")
    if told is None or told.n not in (0, model.histogram.count):
        return None
    return model.histogram if told.n else Histogram()


def _difference(later: Histogram, earlier: Histogram) -> Histogram:
    try:
        return later.since(earlier)
    except ValueError:
        # The counts went back within one boot: the model was loaded anew, and all it has is new.
        return later
