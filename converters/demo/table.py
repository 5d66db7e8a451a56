"""The live table: figures to lines of text, and lines to a terminal (redrawn in place) or a log (now and then)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TextIO

from converters.demo.verdict import Figures
from edged.clock import NS_PER_S, now_ns

FEW_SAMPLES = 100
PLAIN_EVERY_S = 5.0
COLUMNS = ("n", "P50", "P90", "P99", "max")
_UNITS = {"us": 1e-3, "ms": 1.0}


def lines(figures: Figures) -> list[str]:
    """Return the whole table. Times are ms; a percentile of fewer than 100 samples is marked `*`."""
    grid = list(_grid(figures))
    few = [f"* fewer than {FEW_SAMPLES} samples"] if any("*" in row for row in grid) else []
    return [*_head(figures), "", *grid, *few, "", *_counts(figures)]


def summary(figures: Figures) -> str:
    """Return the state in one line, for a log."""
    total = figures.latency.get("total", {})
    percentile = f", P99 {_time(total, 'p99', 'us').strip()} ms" if total else ""
    stream = figures.stream
    return f"{stream.answered}/{stream.expected} windows, accuracy {stream.accuracy:.3f}{percentile}"


def _head(figures: Figures) -> Iterator[str]:
    for name in ("model", "parity", "engine", "broker"):
        if figures.facts.get(name):
            yield f"{name:<9}{figures.facts[name]}"
    if figures.facts.get("rss_bytes"):
        yield f"{'memory':<9}{figures.facts['rss_bytes'] / 2**20:.0f} MiB (the daemon's RSS)"


def _grid(figures: Figures) -> Iterator[str]:
    yield _row("in the daemon, ms", COLUMNS)
    for stage, facts in figures.latency.items():
        yield _row(f"  {stage}", _cells(facts, "us"))
    if figures.ways:
        yield _row("round trip, ms", COLUMNS)
    for way, facts in figures.ways.items():
        yield _row(f"  {way}", _cells(facts, "ms"))


def _row(name: str, cells: tuple[str, ...]) -> str:
    return (f"{name:<20}" + "".join(f"{cell:>9}" for cell in cells)).rstrip()


def _cells(facts: Mapping[str, float], unit: str) -> tuple[str, ...]:
    return (f"{facts['n']:.0f}", *(_time(facts, key, unit) for key in ("p50", "p90", "p99", "max")))


def _time(facts: Mapping[str, float], key: str, unit: str) -> str:
    few = key != "max" and facts["n"] < FEW_SAMPLES
    value = facts.get(f"{key}_{unit}")
    return "-" if value is None else f"{value * _UNITS[unit]:.3f}" + ("*" if few else "")


def _counts(figures: Figures) -> Iterator[str]:
    stream = figures.stream
    seconds = figures.seconds or 1.0
    asked = sum(way["n"] for way in figures.ways.values())
    yield (
        f"sensors   {stream.answered}/{stream.expected} windows answered, accuracy {stream.accuracy:.3f}, "
        f"{sum(stream.errors.values())} errors; {stream.samples / seconds:.0f} samples/s"
    )
    if stream.held:
        yield f"          waited {stream.held} samples' time for answers: this machine is slower than the pace"
    accuracy = sum(way["right"] for way in figures.ways.values()) / asked if asked else 0.0
    errors = sum(sum(way["errors"].values()) for way in figures.ways.values())
    yield f"requests  {asked} answered, accuracy {accuracy:.3f}, {errors} errors; {asked / seconds:.0f} requests/s"


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
        self._draw(lines(figures))
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
