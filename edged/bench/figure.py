"""Figures in few characters, as the table and the pages show them."""

from __future__ import annotations

from edged.client import topcolumns


def milliseconds(value: float | None) -> str:
    """Return a time in milliseconds with three significant digits."""
    return topcolumns.milliseconds(None if value is None else 1000 * value)


def per_second(value: float) -> str:
    """Return a rate: whole from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004


def times(value: float | None) -> str:
    """Return a ratio."""
    return "-" if value is None else f"{value:.3f}x" if value < 10 else f"{value:.0f}x"  # noqa: PLR2004
