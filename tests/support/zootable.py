"""The table that a run of the zoo ends with: what was converted, how large and fast it is, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator

from support import zoobare
from support.zoo import Conversion, made

_ROWS: dict[tuple[str, str], tuple[Conversion, str]] = {}
_HEADS = ("model", "mode", "bytes", "P50 us", "figures", "verdict")
_VERDICT = 110


def add(conversion: Conversion, figures: str = "") -> None:
    """Note a conversion, with the figures that a test found for it."""
    known = _ROWS.get((conversion.name, conversion.asked), (conversion, ""))[1]
    told = ", ".join(filter(None, (known, figures))) if figures not in known else known
    _ROWS[conversion.name, conversion.asked] = (conversion, told)


def lines() -> Iterator[str]:
    """Yield the table; the P50 is measured now, by a bare Interpreter with the runtime's default kernels."""
    if not _ROWS:
        return
    rows = [_HEADS, *(_row(conversion, figures) for conversion, figures in _ROWS.values())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(conversion: Conversion, figures: str) -> tuple[str, ...]:
    name, mode = conversion.name, conversion.asked.replace("--", "")[:40]
    if conversion.code:
        return (name, mode, "-", "-", figures, conversion.verdict[:_VERDICT])
    some = {key: array[:16] for key, array in made(name).inputs.items()}
    p50 = zoobare.run(conversion.model, some, kernels=zoobare.DEFAULT).p50_us
    chosen = conversion.facts["chosen"]
    return (name, mode, f"{conversion.model.stat().st_size:,}", f"{p50:,.0f}", figures, f"passed as {chosen}")
