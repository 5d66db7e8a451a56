"""The table of `edged top`: devices and models to lines of text that fit a width."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edged.client.fleet import Device, Fleet, FleetLatency, last_interval, since_start
from edged.client.metrics import Figures, ModelMetrics, Percentiles
from edged.client.modelstate import note_of, state_of
from edged.client.untrusted import text
from edged.clock import NS_PER_S
from edged.latency import FEW
from edged.request import STAGES

_GAP = "  "
_MIB = 1024 * 1024
_MAX_NAME = 64
_MIN_TEXT = 8  # as short as a column of names is made before a column of numbers goes
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
    """A column; those of the highest `drop` go first where the width is short. `stages`: also filled in stage rows."""

    title: str
    drop: int
    value: Callable[[Row], str]
    left: bool = False
    stages: bool = False


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
        return _marked(row.latency(which), name)

    return value


def _marked(found: Percentiles, name: str) -> str:
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


def _rss(row: Row) -> str:
    rss = row.device.metrics.rss_bytes if row.device.metrics is not None else None
    return "-" if rss is None else f"{rss / _MIB:.0f}M"


def _seen(row: Row) -> str:
    return age((row.now - row.device.seen_ns) / NS_PER_S) if row.device.seen_ns else "-"


def _of_model(name: str) -> Callable[[Row], str]:
    return lambda row: _name(getattr(row.model, name) if row.model is not None else row.told(name)) or "-"


def _name(value: str) -> str:
    return _cut(text(value), _MAX_NAME)


def _cut(shown: str, size: int) -> str:
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
    Column("RSS", 6, _rss),
    Column("SEEN", 3, _seen),
)


def rows(devices: Iterable[Device], now: int, *, stages: bool) -> Iterator[Row]:
    """The lines of the table, by device, model and stage."""
    for device in devices:
        models = device.metrics.models if device.metrics is not None else {}
        told = device.status.models if device.status is not None else {}
        names = sorted(models.keys() | told.keys())
        if not names:
            yield Row(device, now)
        for name in names:
            yield Row(device, now, name, models.get(name), first=name == names[0])
            if stages and name in models:
                yield from (Row(device, now, name, models[name], stage) for stage in STAGES)


def _cells(columns: Sequence[Column], row: Row) -> list[str]:
    if not row.stage:
        return [column.value(row) for column in columns]
    return [
        column.value(row) if column.stages else f"  {row.stage}" if column.title == "MODEL" else ""
        for column in columns
    ]


def table(found: Sequence[Row], width: int | None) -> list[str]:
    """Header and rows, what is wrong below a row. width: characters; columns are left out, names cut, numbers never.
    None: all."""
    grid = [_cells(COLUMNS, row) for row in found]
    titles = [column.title for column in COLUMNS]
    sizes = {title: max(len(cells[i]) for cells in (titles, *grid)) for i, title in enumerate(titles)}
    columns = list(COLUMNS) if width is None else _fitted(sizes, width)
    kept = [COLUMNS.index(column) for column in columns]
    lines = [_line(columns, sizes, [cells[i] for i in kept]) for cells in (titles, *grid)]
    notes = [_GAP + row.note if row.note else "" for row in found]
    below = [note if width is None else _cut(note, width) for note in ("", *notes)]
    return [line for pair in zip(lines, below, strict=True) for line in pair if line]


def _fitted(sizes: dict[str, int], width: int) -> list[Column]:
    """Leave out columns by importance, then shorten names (in `sizes`), then leave out from the right."""
    columns = list(COLUMNS)
    while _width(columns, sizes) > width and any(column.drop for column in columns):
        columns.remove(max(columns, key=lambda column: column.drop))
    while (over := _width(columns, sizes) - width) > 0:
        widest = max((column for column in columns if column.left), key=lambda column: sizes[column.title])
        if sizes[widest.title] > _MIN_TEXT:
            sizes[widest.title] = max(_MIN_TEXT, sizes[widest.title] - over)
        elif len(columns) > 1:
            columns.pop()
        else:
            sizes[widest.title] = width
    return columns


def _width(columns: Sequence[Column], sizes: Mapping[str, int]) -> int:
    return sum(sizes[column.title] for column in columns) + len(_GAP) * (len(columns) - 1)


def _line(columns: Sequence[Column], sizes: Mapping[str, int], cells: Sequence[str]) -> str:
    padded = (
        _cut(cell, sizes[column.title]).ljust(sizes[column.title]) if column.left else cell.rjust(sizes[column.title])
        for column, cell in zip(columns, cells, strict=True)
    )
    return _GAP.join(padded).rstrip()


def screen(fleet: Fleet, now: int, *, stages: bool, width: int | None) -> list[str]:
    """Everything there is to show, as lines."""
    devices, ignored = fleet.snapshot(), ", ".join(f"{name} {count}" for name, count in sorted(fleet.ignored.items()))
    notes = [f"ignored messages: {ignored}"] if ignored else []
    if not devices:
        return [line if width is None else _cut(line, width) for line in ("waiting for devices", *notes)]
    lines = table(list(rows(devices, now, stages=stages)), width)
    of_fleet = (
        *_fleet_line("last interval", last_interval(devices), len(devices), width),
        *_fleet_line("since start", since_start(devices), len(devices), width),
    )
    if any(FEW_MARK in line for line in (*lines[1:], *of_fleet)):
        notes.insert(0, FEW_NOTE)
    return [*lines, "", *of_fleet, *(note if width is None else _cut(note, width) for note in notes)]


def _fleet_line(what: str, found: FleetLatency, devices: int, width: int | None) -> list[str]:
    """One line: who, how many, and the latencies; what does not fit is left out whole."""
    if found.devices:
        latency = (f"{name.upper()} {_marked(found.latency, name)} ms" for name in ("p50", "p90", "p99", "max"))
        parts = [f"{found.devices} of {devices} devices", f"n {found.latency.n}", *latency]
    else:
        parts = ["not known yet", "(needs two messages of a device)"]
    line = f"fleet {what}:"
    for part in parts:
        if width is not None and len(line) + len(part) + len(_GAP) > width:
            break
        line += _GAP + part
    return [line] if width is None or len(line) <= width else []


def document(fleet: Fleet, now: int) -> dict[str, Any]:
    """The same facts for machines; latencies in microseconds, null where not known."""
    devices = fleet.snapshot()
    return {
        "devices": [_device_document(device, now) for device in devices],
        "fleet": {
            "last_interval": dataclasses.asdict(last_interval(devices)),
            "since_start": dataclasses.asdict(since_start(devices)),
        },
        "ignored": dict(fleet.ignored),
    }


def _device_document(device: Device, now: int) -> dict[str, Any]:
    status, metrics = device.status, device.metrics
    names = (metrics.models.keys() if metrics is not None else set()) | (
        status.models.keys() if status is not None else set()
    )
    return {
        "device": device.name,
        "state": device.state,
        "stale": device.stale(now),
        "seen_s_ago": round((now - device.seen_ns) / NS_PER_S, 3) if device.seen_ns else None,
        "boot": (metrics and metrics.boot) or (status and status.boot) or None,
        "version": status.version if status is not None else None,
        "reason": status.reason if status is not None else None,
        "rss_bytes": metrics.rss_bytes if metrics is not None else None,
        "interval_s": metrics.interval_s if metrics is not None else None,
        "models": {name: _model_document(device, name) for name in sorted(names)},
    }


def _model_document(device: Device, name: str) -> dict[str, Any]:
    told = dict(device.status.models.get(name, {})) if device.status is not None else {}
    model = device.metrics.models.get(name) if device.metrics is not None else None
    if model is None:
        return {"status": told}
    facts = {field: value for field, value in vars(model).items() if field != "histogram"}
    figures = {key: dataclasses.asdict(facts.pop(key)) for key in ("since_start", "interval")}
    return {"status": told, **facts, **figures}
