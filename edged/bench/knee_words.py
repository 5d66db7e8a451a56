"""The knee in words: what it is, what was tried, and what it is when none or all of it held."""

from __future__ import annotations

from edged.bench.document import Doc
from edged.bench.figure import per_second


def headline(found: Doc) -> str:
    """Return what the knee is, or that there is none and why: `100/s, the highest rate tried that …`."""
    bound = f"kept its P99 within {found['p99_bound_ms']:g} ms, every request answered without an error"
    if found["rate"] is None:
        return f"none: {_none(found, bound)}"
    rate, runs = per_second(found["rate"]), 1 + found["confirmations"]
    if found["at_least"]:
        return f"at least {rate}/s: it {bound} ({runs} runs), and {_further(found)}"
    return f"{rate}/s, the highest rate tried that {bound} ({runs} runs)"


def _none(found: Doc, bound: str) -> str:
    held = _held(found)
    if held:
        return f"no rate was confirmed by further runs; {per_second(max(held))}/s {bound}, once"
    if found["tried"]:
        return f"no rate tried {bound}"
    return "no rate was tried" + ("" if found["saturation_per_s"] else ": nothing was answered without an error")


def _further(found: Doc) -> str:
    if found["above"] is None:
        return "no rate tried failed"
    return f"beyond it the device was not the limit: at {per_second(found['above'])}/s {found['why']}"


def tried(found: Doc) -> str:
    """Return what was tried, and what a closed loop came to."""
    rates = sorted({one["rate"] for one in found["tried"]})
    parts = []
    if rates:
        span = f"{per_second(rates[0])}/s" + (f" to {per_second(rates[-1])}/s" if len(rates) > 1 else "")
        parts.append(f"{len(rates)} rate{'s' * (len(rates) != 1)}, {span}")
    if found["above"] is not None:
        parts.append(f"the lowest that failed {per_second(found['above'])}/s: {found['why']}")
    return "; ".join(["tried: " + (parts[0] if parts else "no rate"), *parts[1:],
                      f"in a closed loop {per_second(found['saturation_per_s'])}/s"])  # fmt: skip


def _held(found: Doc) -> set[float]:
    failed = {one["rate"] for one in found["tried"] if one["why"]}
    return {one["rate"] for one in found["tried"]} - failed
