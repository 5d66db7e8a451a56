"""Whether a sample follows the one before it. Pure: seq and time in, a verdict out.

By `seq`, when the stream has one (it counts the samples of one recording by ones):
- last + 1 follows; more is a gap, and says how many samples are missing;
- not more than the last is a duplicate (MQTT delivers twice at QoS 1), to be dropped, except
- 0 or 1 below the last: the sender has begun a new recording; so has one that stays behind, in order, for
  `BEHIND_LIMIT` samples (its first ones were lost, and nothing would ever be used again).
By `time`, in seconds: a step back, or forward by more than `max_gap_s`, is a gap.
"""

from __future__ import annotations

from enum import Enum

# More than a broker sends twice after a reconnect: it has at most 20 messages in flight unless told otherwise.
BEHIND_LIMIT = 64


class Verdict(Enum):
    """What a sample is to the recording so far."""

    FOLLOWS = "follows"
    GAP = "gap"
    RESTART = "restart"
    DUPLICATE = "duplicate"


class Continuity:
    """The place reached in one recording. `missed` is how many samples the last gap by seq skipped."""

    __slots__ = ("_behind", "_max_gap_s", "_run", "missed", "seq", "time")

    def __init__(self, max_gap_s: float | None) -> None:
        self._max_gap_s = max_gap_s
        self.seq: int | None = None
        self.time: float | None = None
        self.missed = 0
        self._behind, self._run = 0, 0

    def judge(self, seq: int | None, time: float | None) -> Verdict:
        """Judge the next sample and, unless it is a duplicate, move on to it."""
        self.missed = 0
        verdict = self._by_seq(seq)
        if verdict is Verdict.DUPLICATE:
            return verdict
        if verdict is Verdict.FOLLOWS and self._time_breaks(time):
            verdict = Verdict.GAP
        self.seq, self.time, self._run = seq, time, 0
        return verdict

    def _by_seq(self, seq: int | None) -> Verdict:
        if seq is None or self.seq is None or seq == self.seq + 1:
            return Verdict.FOLLOWS
        if seq > self.seq:
            self.missed = seq - self.seq - 1
            return Verdict.GAP
        if seq < self.seq and (seq in (0, 1) or self._stays_behind(seq)):
            return Verdict.RESTART
        return Verdict.DUPLICATE

    def _stays_behind(self, seq: int) -> bool:
        self._run = self._run + 1 if self._run and seq == self._behind + 1 else 1
        self._behind = seq
        return self._run >= BEHIND_LIMIT

    def _time_breaks(self, time: float | None) -> bool:
        if time is None or self.time is None:
            return False
        step = time - self.time
        return step < 0 or (self._max_gap_s is not None and step > self._max_gap_s)
