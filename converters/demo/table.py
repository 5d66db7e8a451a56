"""The live table: figures to lines of text, and lines to a terminal (redrawn in place) or a log (now and then)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from converters.demo.verdict import Figures
from edged.client.topcolumns import FEW_MARK, FEW_NOTE, milliseconds
from edged.clock import NS_PER_S, now_ns
from edged.latency import FEW

PLAIN_EVERY_S = 5.0
COLUMNS = ("n", "P50", "P90", "P99", "max")


def lines(figures: Figures) -> list[str]:
    """Return the whole table. Times are ms; a percentile of fewer than 100 samples is marked."""
    grid = list(_grid(figures))
    few = [FEW_NOTE] if any(FEW_MARK in row for row in grid) else []
    return [*_head(figures), "", *grid, *few, "", *_counts(figures)]


def summary(figures: Figures) -> str:
    """Return the state in one line, for a log."""
    total = figures.latency.get("total", {})
    percentile = f", P99 {_time(total, 'p99')} ms" if total else ""
    stream = figures.stream
    return (
        f"{stream.answered}/{stream.expected} windows, accuracy {accuracy(stream.right, stream.answered)}{percentile}"
    )


def meaning(figures: Figures) -> Iterator[str]:
    """Yield what the figures stand for and what they do not, and what the converter warned of."""
    recordings, sensors = figures.facts.get("recordings"), figures.facts.get("sensors")
    if recordings:
        times = f"{figures.stream.expected / recordings:.3g}"
        yield f"note      {recordings} recordings, each replayed {times} times, by {sensors} sensors together"
        yield "          the demo sets the pace: samples/s and requests/s are no capacity"
    yield from (f"note      `edged convert` warns: {warning}" for warning in figures.facts.get("warnings", ()))


def _head(figures: Figures) -> Iterator[str]:
    for name in ("model", "parity", "engine", "broker"):
        if figures.facts.get(name):
            yield f"{name:<9}{figures.facts[name]}"
    if figures.facts.get("rss_bytes"):
        yield f"{'memory':<9}{figures.facts['rss_bytes'] / 2**20:.0f} MiB (the daemon's RSS)"


def _grid(figures: Figures) -> Iterator[str]:
    yield _row("in the daemon, ms", COLUMNS)
    for stage, facts in figures.latency.items():
        yield _row(f"  {stage}", _cells(facts))
    if figures.ways:
        yield _row("round trip, ms", COLUMNS)
    for way, facts in figures.ways.items():
        yield _row(f"  {way}", _cells(facts))


def accuracy(right: int, answered: int) -> str:
    """Return the share of right answers; `-` before the first."""
    return f"{right / answered:.3f}" if answered else "-"


def _row(name: str, cells: tuple[str, ...]) -> str:
    return (f"{name:<20}" + "".join(f"{cell:>9}" for cell in cells)).rstrip()


def _cells(facts: Mapping[str, Any]) -> tuple[str, ...]:
    return (f"{facts['n']}", *(_time(facts, key) for key in ("p50", "p90", "p99", "max")))


def _time(facts: Mapping[str, Any], key: str) -> str:
    few = key != "max" and 0 < facts["n"] < FEW
    return milliseconds(facts[f"{key}_us"]) + FEW_MARK * few


def _counts(figures: Figures) -> Iterator[str]:
    stream = figures.stream
    seconds = figures.seconds or 1.0
    asked = sum(way["n"] for way in figures.ways.values())
    share = accuracy(stream.right, stream.answered)
    yield (
        f"sensors   {stream.answered}/{stream.expected} windows answered, accuracy {share}, "
        f"{sum(stream.errors.values())} errors; {stream.samples / seconds:.0f} samples/s"
    )
    if stream.held:
        yield f"          waited {stream.held} samples' time for answers: this machine is slower than the pace"
    right = accuracy(sum(way["right"] for way in figures.ways.values()), asked)
    errors = sum(sum(way["errors"].values()) for way in figures.ways.values())
    yield f"requests  {asked} answered, accuracy {right}, {errors} errors; {asked / seconds:.0f} requests/s"


class Screen:
    """Shows the table: redrawn in place on a terminal, one summary line every few seconds elsewhere."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = 0
        self._next_ns = 0

    def show(self, figures: Figures) -> None:
        """Show the figures as they are now."""
        if self._live:
            self._draw(lines(figures))
        elif now_ns() >= self._next_ns:
            self._next_ns = now_ns() + int(PLAIN_EVERY_S * NS_PER_S)
            self.say(summary(figures))

    def final(self, figures: Figures) -> None:
        """Show the whole table for good."""
        self._draw([*lines(figures), *meaning(figures)])
        self._drawn = 0

    def say(self, text: str) -> None:
        """Write one line."""
        self._out.write(text + "\n")
        self._out.flush()

    def _draw(self, rows: list[str]) -> None:
        # Up to where the last table began, then clear to the end of the screen.
        back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._out.write(back + "".join(f"{row}\n" for row in rows))
        self._out.flush()
        self._drawn = len(rows) if self._live else 0
