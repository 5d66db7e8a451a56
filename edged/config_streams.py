"""The `streams` section: sensor topics whose messages are gathered into windows for a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from edged import filters, topics
from edged.checks import Check, above, at_least, at_most, not_empty, unique
from edged.schema import Problem


def topic_problem(text: str) -> str | None:
    """Return what is wrong with a stream's topic filter, or None."""
    if text.startswith("$share/"):
        return "a shared subscription would tear windows apart"
    return filters.problem(text)


def level_problem(text: str) -> str | None:
    """Return why a name cannot be one level of a topic, or None."""
    if topics.valid_level(text) and filters.sendable(text):
        return None
    return "must be one topic level: 1 to 255 bytes, no '/', '+', '#' or control characters"


LevelName = Annotated[str, Check(level_problem, "one topic level")]
MAX_SAMPLES = 10_000_000
Millis = Annotated[int, at_least(1), at_most(topics.MAX_DEADLINE_MS)]


@dataclass(frozen=True, kw_only=True)
class WindowConfig:
    """How many samples make one inference, and how many later the next one begins."""

    length: Annotated[int, at_least(1), at_most(MAX_SAMPLES)] = field(
        metadata={"help": "Samples in a window.", "example": 100}
    )
    hop: Annotated[int, at_least(1), at_most(MAX_SAMPLES)] = field(
        metadata={"help": "Samples from one window's start to the next one's; at most the length.", "example": 50}
    )

    def problems(self) -> Iterator[Problem]:
        """Yield what does not go together."""
        if self.hop > self.length:
            yield Problem("hop", f"must be at most the length ({self.length}), or samples would be skipped")


@dataclass(frozen=True, kw_only=True)
class StreamConfig:
    """One sensor stream. Answers go to `edged/v1/dev/<device>/out/<name>[/<key>]`."""

    name: LevelName = field(metadata={"help": "Name of the stream, as in its output topic.", "example": "imu"})
    topic: Annotated[str, Check(topic_problem)] = field(
        metadata={"help": "Topic filter of the sensors; + and # are wildcards.", "example": "sensors/+/imu"}
    )
    key_level: Annotated[int, at_least(0), at_most(65_535)] | None = field(
        default=None,
        metadata={
            "help": "Which topic level (from 0) tells one sensor from another; each has windows of its own.",
            "example": 1,
        },
    )
    decode: Literal["json", "csv", "raw"] = field(
        default="json", metadata={"help": "What a message is: a JSON object, a CSV line, or raw little-endian float32."}
    )
    fields: Annotated[tuple[Annotated[str, not_empty], ...], not_empty, unique] = field(
        metadata={
            "help": "Names of the values of a sample, in the model's order.",
            "example": ["ax", "ay", "az", "gx", "gy", "gz"],
        }
    )
    seq: Annotated[str, not_empty] | None = field(
        default=None,
        metadata={"help": "Value that counts samples by ones; a jump restarts the window.", "example": "n"},
    )
    time: Annotated[str, not_empty] | None = field(
        default=None, metadata={"help": "Value with the sensor's time in seconds.", "example": "t"}
    )
    window: WindowConfig = field(
        default=WindowConfig(length=1, hop=1),
        metadata={"help": "Samples that make one inference; each sample is one when left out."},
    )
    model: LevelName = field(metadata={"help": "Name of the model that answers.", "example": "har"})
    reply: Literal["json", "raw", "cbor", "npy"] = field(default="json", metadata={"help": "Format of the answer."})
    max_keys: Annotated[int, at_least(1), at_most(10_000_000)] = field(
        default=1024, metadata={"help": "Sensors remembered at once; the one silent longest is forgotten first."}
    )
    qos: Literal[0, 1] = field(default=0, metadata={"help": "Quality of service of subscription and answers."})
    store: bool = field(
        default=False, metadata={"help": "Keep answers on disk while there is no broker, and send them in order after."}
    )
    deadline_ms: Millis | None = field(
        default=None,
        metadata={"help": "Milliseconds an inference may take; the model's when left out.", "example": 500},
    )
    max_gap_s: Annotated[float, above(0), at_most(1e9)] | None = field(
        default=None,
        metadata={"help": "A jump of `time` by more than these seconds restarts the window.", "example": 1.0},
    )

    def outputs(self, device: str) -> str:
        """Return the filter of the topics its answers go to."""
        key = () if self.key_level is None else ("+",)
        return topics.device(device, "out", self.name, *key)

    def problems(self) -> Iterator[Problem]:
        """Yield what does not go together."""
        if self.decode == "raw" and (self.seq or self.time):
            yield Problem("decode", "raw samples carry no seq and no time: use json or csv")
        if set(self.fields) <= {self.seq, self.time}:
            yield Problem("fields", "holds nothing beside seq and time")
        if self.max_gap_s is not None and self.time is None:
            yield Problem("max_gap_s", "needs time, the value that holds the sensor's time")
        if self.seq is not None and self.seq == self.time:
            yield Problem("time", "seq and time cannot be the same value")
        if self.key_level is not None and (wrong := self._key_level_problem(self.key_level)):
            yield Problem("key_level", wrong)

    def _key_level_problem(self, index: int) -> str | None:
        levels = self.topic.split("/")
        if index < len(levels) and levels[index] not in ("+", "#"):
            return (
                f"level {index} of {self.topic!r} is always {levels[index]!r}: choose a wildcard level, counted from 0"
            )
        if index >= len(levels) and levels[-1] != "#":
            return f"{self.topic!r} has the levels 0 to {len(levels) - 1}"
        return None
