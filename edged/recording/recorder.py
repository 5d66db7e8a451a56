"""Source and rule together, on the transport's thread: every message is counted until no more samples are wanted."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from edged.filters import matches
from edged.recording.keep import Kept, Sample
from edged.recording.npzfile import Facts, facts, misfit
from edged.recording.source import Source
from edged.transports.base import Message


class Recorder:
    """Give it a transport's messages; `full` is set when no more samples are wanted.

    topic: what does not match it is counted as `other`. expected: dtype and shape of each array, where a file holds
    samples already. misfit: in words, why the first sample cannot go with those; "" as long as it can.
    """

    def __init__(self, source: Source, kept: Kept, topic: str, expected: Mapping[str, Facts]) -> None:
        self.source, self.kept = source, kept
        self._topic, self._expected = topic, expected
        self.full = threading.Event()
        self.messages = self.other = 0
        self.misfit = ""

    def on_message(self, message: Message) -> None:
        """Take one message; on the transport's thread."""
        if self.full.is_set():
            return
        self.messages += 1
        if matches(self._topic, message.topic):
            self.source.take(message, self._take)
        else:
            self.other += 1

    def interrupted(self) -> None:
        """Say that the connection was lost; on the transport's thread."""
        self.source.interrupted()

    def _take(self, key: str, sample: Sample) -> None:
        if self.full.is_set():  # by a sample before this one in the same message
            return
        if self._expected and not self.kept.count:
            self.misfit = misfit(facts(sample), self._expected)
        if not self.misfit:
            self.kept.offer(key, sample)
        if self.misfit or self.kept.full:
            self.full.set()
