"""The columns of `edged top`: what each shows of a model, a stage of it or a device, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edged.client.fleet import Device
from edged.client.metrics import Figures, ModelMetrics, Percentiles
from edged.client.modelstate import note_of, state_of
from edged.client.untrusted import text
from edged.clock import NS_PER_S
from edged.latency import FEW

_MIB = 1024 * 1024
_MAX_NAME = 64
FEW_MARK = "*"
FEW_NOTE = f"{FEW_MARK} fewer than {FEW} samples"


@dataclass(frozen=True)
class Row:
    """One line: a model of a device, a stage of a model, or a device without models. first: of its device."""

    device: Device
    now: int
    name: str = ""
    model: ModelMetrics | None = None
    stage: str = ""
    first: bool = True

    @property
    def note(self) -> str:
        """What stands below the line, "" for nothing."""
        return "" if self.stage else note_of(self.device, self.name, first=self.first)

    @property
    def figures(self) -> tuple[Figures, Figures]:
        """Of the last interval, and since start."""
        return (self.model.interval, self.model.since_start) if self.model is not None else (Figures(), Figures())

    def latency(self, which: int) -> Percentiles:
        """Of this row's stage: 0 the last interval, 1 since start."""
        return self.figures[which].latency.get(self.stage or "total", Percentiles())

    def told(self, key: str) -> str:
        """What the status message says of this model."""
        status = self.device.status
        return text(status.models.get(self.name, {}).get(key)) if status is not None else ""


@dataclass(frozen=True)
class Column:
    """A column; those of the highest `drop` go first where the width is short. stages: also filled in stage rows.

    rare: left out where no row has anything to show.
    """

    title: str
    drop: int
    value: Callable[[Row], str]
    left: bool = False
    stages: bool = False
    rare: bool = False


def milliseconds(value_us: float | None) -> str:
    """Microseconds as milliseconds with three significant digits."""
    if value_us is None:
        return "-"
    ms = value_us / 1000
    return f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:.0f}"  # noqa: PLR2004


def age(seconds: float) -> str:
    """A duration in its largest whole unit."""
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def _percentile(which: int, name: str) -> Callable[[Row], str]:
    def value(row: Row) -> str:
        return marked(row.latency(which), name)

    return value


def marked(found: Percentiles, name: str) -> str:
    """A percentile in ms (`p50`, … `max`), with a mark where it is of few samples."""
    shown = milliseconds(getattr(found, f"{name}_us"))
    return shown + FEW_MARK if name != "max" and found.n and found.few else shown


def _state(row: Row) -> str:
    state = _name(state_of(row.device, row.name))
    return f"{state} (stale)" if row.device.stale(row.now) else state


def _rate(row: Row) -> str:
    interval_s = row.device.metrics.interval_s if row.device.metrics is not None else 0.0
    return f"{row.figures[0].requests / interval_s:.1f}" if interval_s > 0 and row.model is not None else "-"


def _errors(row: Row) -> str:
    return str(row.figures[1].failed) if row.model is not None else "-"


def _version(row: Row) -> str:
    return str(row.model.version) if row.model is not None and row.model.version is not None else "-"


def _queue(row: Row) -> str:
    queued = row.model.queue_requests if row.model is not None else None
    return "-" if queued is None else str(queued)


def _keys(row: Row) -> str:
    return "-" if row.model is None or row.model.keys is None else str(row.model.keys)


def _batch(row: Row) -> str:
    return "-" if row.model is None or row.model.per_inference is None else f"{row.model.per_inference:.1f}"


def _outbox(row: Row) -> str:
    waiting = row.device.metrics.outbox_waiting if row.device.metrics is not None else None
    return "-" if waiting is None else str(waiting)


def _rss(row: Row) -> str:
    rss = row.device.metrics.rss_bytes if row.device.metrics is not None else None
    return "-" if rss is None else f"{rss / _MIB:.0f}M"


def _seen(row: Row) -> str:
    return age((row.now - row.device.seen_ns) / NS_PER_S) if row.device.seen_ns else "-"


def _of_model(name: str) -> Callable[[Row], str]:
    return lambda row: _name(getattr(row.model, name) if row.model is not None else row.told(name)) or "-"


def _name(value: str) -> str:
    return cut(text(value), _MAX_NAME)


def cut(shown: str, size: int) -> str:
    """A text of at most `size` characters, with `…` for what is left out."""
    return shown if len(shown) <= size else shown[: max(0, size - 1)] + "…"[:size]


COLUMNS = (
    Column("DEVICE", 0, lambda row: _name(row.device.name), left=True),
    Column("STATE", 0, _state, left=True),
    Column("MODEL", 0, lambda row: _name(row.name) or "-", left=True),
    Column("VER", 6, _version),
    Column("DELEGATE", 1, _of_model("delegate"), left=True),
    Column("RUNTIME", 10, _of_model("runtime"), left=True),
    Column("REQ/S", 3, _rate),
    Column("P50ms", 2, _percentile(0, "p50"), stages=True),
    Column("P90ms", 4, _percentile(0, "p90"), stages=True),
    Column("P99ms", 0, _percentile(0, "p99"), stages=True),
    Column("MAXms", 4, _percentile(0, "max"), stages=True),
    Column("P50all", 8, _percentile(1, "p50"), stages=True),
    Column("P90all", 9, _percentile(1, "p90"), stages=True),
    Column("P99all", 7, _percentile(1, "p99"), stages=True),
    Column("MAXall", 9, _percentile(1, "max"), stages=True),
    Column("ERRall", 3, _errors),
    Column("QUEUE", 5, _queue),
    Column("BATCH", 5, _batch, rare=True),
    Column("KEYS", 5, _keys, rare=True),
    Column("OUTBOX", 5, _outbox, rare=True),
    Column("RSS", 6, _rss),
    Column("SEEN", 3, _seen),
)


def cells(columns: Sequence[Column], row: Row) -> list[str]:
    """The texts of one row."""
    if not row.stage:
        return [column.value(row) for column in columns]
    return [
        column.value(row) if column.stages else f"  {row.stage}" if column.title == "MODEL" else ""
        for column in columns
    ]
