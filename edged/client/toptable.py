"""The table of `edged top`: devices and models to lines of text that fit a width."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from edged.client.fleet import Device, Fleet, FleetLatency, last_interval, since_start
from edged.client.topcolumns import COLUMNS, FEW_MARK, FEW_NOTE, Column, Row, cells, cut, marked
from edged.clock import NS_PER_S
from edged.request import STAGES

_GAP = "  "
_MIN_TEXT = 8  # as short as a column of names is made before a column of numbers goes


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


def table(found: Sequence[Row], width: int | None) -> list[str]:
    """Header and rows, what is wrong below a row. width: characters; columns are left out, names cut, numbers never.
    None: all that have something to show."""
    shown = [column for column in COLUMNS if not column.rare or any(column.value(row) != "-" for row in found)]
    grid = [cells(shown, row) for row in found]
    titles = [column.title for column in shown]
    sizes = {title: max(len(line[i]) for line in (titles, *grid)) for i, title in enumerate(titles)}
    columns = shown if width is None else _fitted(shown, sizes, width)
    kept = [shown.index(column) for column in columns]
    lines = [_line(columns, sizes, [line[i] for i in kept]) for line in (titles, *grid)]
    notes = [_GAP + row.note if row.note else "" for row in found]
    below = [note if width is None else cut(note, width) for note in ("", *notes)]
    return [line for pair in zip(lines, below, strict=True) for line in pair if line]


def _fitted(shown: Sequence[Column], sizes: dict[str, int], width: int) -> list[Column]:
    """Leave out columns by importance, then shorten names (in `sizes`), then leave out from the right."""
    columns = list(shown)
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


def _line(columns: Sequence[Column], sizes: Mapping[str, int], line: Sequence[str]) -> str:
    padded = (
        cut(cell, sizes[column.title]).ljust(sizes[column.title]) if column.left else cell.rjust(sizes[column.title])
        for column, cell in zip(columns, line, strict=True)
    )
    return _GAP.join(padded).rstrip()


def screen(fleet: Fleet, now: int, *, stages: bool, width: int | None) -> list[str]:
    """Everything there is to show, as lines."""
    devices, ignored = fleet.snapshot(), ", ".join(f"{name} {count}" for name, count in sorted(fleet.ignored.items()))
    notes = [f"ignored messages: {ignored}"] if ignored else []
    if not devices:
        return [line if width is None else cut(line, width) for line in ("waiting for devices", *notes)]
    lines = table(list(rows(devices, now, stages=stages)), width)
    of_fleet = (
        *_fleet_line("last interval", last_interval(devices), len(devices), width),
        *_fleet_line("since start", since_start(devices), len(devices), width),
    )
    if any(FEW_MARK in line for line in (*lines[1:], *of_fleet)):
        notes.insert(0, FEW_NOTE)
    return [*lines, "", *of_fleet, *(note if width is None else cut(note, width) for note in notes)]


def _fleet_line(what: str, found: FleetLatency, devices: int, width: int | None) -> list[str]:
    """One line: who, how many, and the latencies; what does not fit is left out whole."""
    if found.devices:
        latency = (f"{name.upper()} {marked(found.latency, name)} ms" for name in ("p50", "p90", "p99", "max"))
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
        "outbox_waiting": metrics.outbox_waiting if metrics is not None else None,
        "outbox_bytes": metrics.outbox_bytes if metrics is not None else None,
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
