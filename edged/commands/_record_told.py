"""What `edged record` tells: a line that moves on a terminal, and the summary, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from edged.commands.progress import Progress
from edged.intake import REFUSALS
from edged.recording.keep import Sample
from edged.recording.plan import Plan
from edged.recording.recorder import Recorder
from edged.shown import plain, shape, table

# Keys that are listed by name; a summary of thousands is none.
_SHOWN_KEYS = 20
_LEFT_OUT = {"every": "left out by --every", "per_key": "beyond --per-key", "spread": "not drawn by --spread"}
_COUNTED = {
    "bad": "not usable", "gaps": "gaps", "missed": "samples missing in gaps", "duplicates": "sent twice",
    "restarts": "restarts of a sensor", "retained": "retained (stale)", "evicted": "sensors forgotten",
    "interrupted": "windows thrown away at a lost connection", "repeats": "requests sent again",
    **{f"refused_{reason}": f"not run by the daemon: {says}" for reason, says in REFUSALS.items()},
}  # fmt: skip


class RecordProgress:
    """What is recorded, on a line that moves. wanted: samples that end the recording, if any do."""

    def __init__(self, stream: TextIO, what: str, wanted: int | None) -> None:
        self._progress, self._of = Progress(stream), f" of {wanted}" if wanted else ""
        if self._progress.live:
            with suppress(OSError):
                stream.write(f"recording {plain(what)}; Ctrl-C ends it and writes the file\n")

    def show(self, recorder: Recorder, passed_s: float, trouble: str) -> None:
        """Draw the line. passed_s: seconds since the connection; trouble: why there is none now, or ""."""
        kept, bad = recorder.kept, recorder.source.counters()["bad"]
        parts = [f"{kept.count}{self._of} samples", f"{_keys(recorder)} keys", f"{kept.count / passed_s:.1f}/s"]
        parts += [f"{bad} not usable"] if bad else []
        parts += [f"no connection: {trouble}"] if trouble else []
        # A terminal may go away in the middle; the recording is worth more than the line.
        with suppress(OSError):
            self._progress.show(f"{', '.join(parts)}, {passed_s:.0f} s")

    def done(self) -> None:
        """Clear the line."""
        with suppress(OSError):
            self._progress.done()


def _keys(recorder: Recorder) -> int:
    return sum(count > 0 for count in list(recorder.kept.kept.values()))


@dataclass(frozen=True)
class Summary:
    """A recording that is over. samples: those of this recording; before: how many the file held already."""

    output: Path
    plan: Plan
    recorder: Recorder
    ended: str
    seconds: float
    disconnects: int
    samples: Sequence[Sample]
    before: int

    def document(self) -> dict[str, Any]:
        """Return every fact, for JSON."""
        kept = self.recorder.kept
        return {
            "output": str(self.output),
            "samples": len(self.samples),
            "samples_in_file": self.before + len(self.samples),
            "arrays": [self._array(name) for name in self.samples[0]],
            "keys": {key: count for key, count in sorted(kept.kept.items()) if count},
            "topic": self.plan.subscription.filter,
            "stream": self.plan.stream or None,
            "seconds": round(self.seconds, 3),
            "ended_by": self.ended,
            "messages": self.recorder.messages,
            "other_topics": self.recorder.other,
            "left_out": dict(kept.left_out),
            "counters": self.recorder.source.counters(),
            "reasons": list(self.recorder.source.reasons),
            "disconnects": self.disconnects,
            "notes": list(self.plan.notes),
        }

    def _array(self, name: str) -> dict[str, object]:
        arrays = [sample[name] for sample in self.samples]
        facts: dict[str, object] = {"name": name, "dtype": arrays[0].dtype.name, "shape": list(arrays[0].shape)}
        if arrays[0].dtype.kind not in "fiub" or not arrays[0].size:
            return facts
        low, high = min(array.min() for array in arrays), max(array.max() for array in arrays)
        return facts | {"minimum": low.item(), "maximum": high.item()}

    def as_json(self) -> str:
        """Return one JSON document."""
        return json.dumps(self.document(), indent=2) + "\n"

    def as_text(self) -> str:
        """Return what a person reads."""
        facts = self.document()
        head = f"{facts['output']}: {facts['samples']} samples of {self.plan.what} in {self.seconds:.0f} s"
        more = f", {facts['samples_in_file']} with those before" if self.before else ""
        rows = [*map(_array_row, facts["arrays"]), *_key_rows(facts["keys"]), *self._other_rows(facts)]
        return plain(f"{head}{more} (ended by {self.ended})") + "\n" + table(rows)

    def _other_rows(self, facts: dict[str, Any]) -> Iterator[list[str]]:
        yield from (["", f"{n} {_LEFT_OUT[name]}"] for name, n in facts["left_out"].items())
        yield from (
            ["", f"{facts['counters'][name]} {say}"] for name, say in _COUNTED.items() if facts["counters"].get(name)
        )
        yield from (["", reason] for reason in facts["reasons"])
        if self.recorder.other:
            yield ["", f"{self.recorder.other} messages on topics that are not the stream's"]
        if self.disconnects:
            yield ["", f"{self.disconnects} times without a connection: messages of that time are missing"]


def _array_row(facts: dict[str, Any]) -> list[str]:
    values = f", {facts['minimum']:g} to {facts['maximum']:g}" if "minimum" in facts else ""
    return [facts["name"], f"{facts['dtype']} {shape(facts['shape'])}{values}"]


def _key_rows(keys: dict[str, int]) -> Iterator[list[str]]:
    if set(keys) == {""}:  # a stream that does not tell sensors apart
        return
    ranked = sorted(keys.items(), key=lambda item: (-item[1], item[0]))
    yield from (["key", f"{key}: {count}"] for key, count in ranked[:_SHOWN_KEYS])
    if len(ranked) > _SHOWN_KEYS:
        yield ["key", f"and {len(ranked) - _SHOWN_KEYS} more"]
