"""Whether a run is good enough, for a person and for CI."""

from __future__ import annotations

from edged.bench.document import Doc


def failures(found: Doc, max_p99_ms: float | None) -> list[str]:
    """Return what is wrong, a line each: answers that are missing or doubled, and what the bound does not allow."""
    # What a search for the knee finds beyond it is no failure.
    if found["knee"] is not None:
        held = found["knee"]["rate"] is not None or found["interrupted"]
        return [] if held else [f"no rate holds a P99 within {found['knee']['p99_bound_ms']:g} ms"]
    runs = found["runs"]
    wrong = [line for run in runs for line in _lost(run)]
    if max_p99_ms is not None:
        wrong += [line for run in runs for line in _beyond(run, max_p99_ms)]
    return wrong


def _lost(run: Doc) -> list[str]:
    said = {"missing": "without an answer", "unsent": "that could not be sent"}
    lines = [f"{run['label']}: {_requests(run[key])} {words}" for key, words in said.items() if run[key]]
    return lines + ([f"{run['label']}: {run['doubled']} answers came twice"] if run["doubled"] else [])


def _requests(count: int) -> str:
    return f"{count:,} request{'s' * (count != 1)}"


def _beyond(run: Doc, max_p99_ms: float) -> list[str]:
    p99, errors = run["latency"]["p99_ms"], sum(run["errors"].values())
    lines = [f"{run['label']}: {_requests(errors)} answered with an error"] if errors else []
    if p99 is None:
        return [*lines, f"{run['label']}: no latency was measured"]
    return [*lines, f"{run['label']}: P99 {p99:.3g} ms is over {max_p99_ms:g} ms"] if p99 > max_p99_ms else lines
