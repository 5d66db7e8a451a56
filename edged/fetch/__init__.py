"""Bundles from elsewhere: an http(s) address or a path, copied below the state directory and compared with a sha256.

Rules it keeps:
- A child process reads from the network, the parent only watches it: nothing of it stays in the daemon's memory, and
  it can be ended at any moment.
- A file has its final name only once it is whole and is what was asked for. What was got so far is gone on with
  after a failure that may pass.
- Bytes, time and the child's memory are bounded; of an address nothing is told that may be secret.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from edged import childprocess
from edged.clock import NS_PER_S, now_ns
from edged.errors import UnavailableError
from edged.limits import resident
from edged.shown import size
from edged.wholefile import remove

__all__ = ["Order", "StoppedError", "fetched", "shown"]

# Seconds to the second try, doubled after each one.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
_TICK_S = 0.05
# Of the child: ten times of what it takes. A server must not fill the memory of the box.
MOST_MEMORY = 256 << 20
PART = ".part"

# Told how many bytes are there, and what went wrong last ("" for nothing yet).
Progress = Callable[[int, str], None]


class StoppedError(Exception):
    """Nobody wants it any more."""


@dataclass(frozen=True)
class Order:
    """What to fetch. source: http(s)://… or an absolute path. sha256: of the file; of a directory's `bundle.json`.

    into: the directory that gets a file or directory named after `sha256`. most_bytes: of the whole. idle_s: how long a
    server may say nothing.
    """

    source: str
    sha256: str
    into: Path
    most_bytes: int
    idle_s: float = 30.0

    @property
    def part(self) -> Path:
        """What is there of it before it is whole."""
        return self.into / (self.sha256 + PART)

    def dump(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def load(cls, text: str) -> Order:
        """Read what `dump` made."""
        given = json.loads(text)
        return cls(**{**given, "into": Path(given["into"])})


class _Watch:
    """The guard of one child: time, whether it is still wanted, and how far it is."""

    def __init__(self, order: Order, end_ns: int, wanted: Callable[[], bool], progress: Progress) -> None:
        self._order, self._end_ns, self._wanted, self._progress = order, end_ns, wanted, progress
        self.broken, self.error, self.child = "", "", 0

    def tick(self) -> bool:
        """Return whether it is over."""
        with suppress(OSError):
            self._progress(self._order.part.stat().st_size, self.error)
        if not self._wanted():
            raise StoppedError
        if self.child and (held := resident(self.child)) > MOST_MEMORY:
            self.broken = f"held {size(held)} of memory, at most {size(MOST_MEMORY)}"
            return True
        self.broken = "was not done in time"
        return now_ns() >= self._end_ns


def fetched(order: Order, timeout_s: float, wanted: Callable[[], bool], progress: Progress) -> Path:
    """Fetch it, trying again after failures that may pass, and return where it lies. Blocks.

    wanted: asked often, ends it with StoppedError.
    Raises UnavailableError (it cannot be had, or not in time), with the reason.
    """
    end_ns = now_ns() + int(timeout_s * NS_PER_S)
    watch = _Watch(order, end_ns, wanted, progress)
    try:
        return _patiently(order, watch, end_ns)
    except StoppedError:
        remove(order.part)
        raise


def _patiently(order: Order, watch: _Watch, end_ns: int) -> Path:
    pause_s = FIRST_PAUSE_S
    while True:
        answer = _asked(order, watch)
        if "name" in answer:
            return order.into / str(answer["name"])
        watch.error = str(answer["error"])
        if not answer["again"] or now_ns() + pause_s * NS_PER_S >= end_ns:
            raise UnavailableError(shown(order.source), watch.error)
        _wait(watch, pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _asked(order: Order, watch: _Watch) -> dict[str, object]:
    with childprocess.start_answering("edged.fetch", given=order.dump()) as child:
        watch.child = child.pid
        try:
            return childprocess.guarded_answer(child, watch, "fetching")
        except childprocess.NoAnswerError as exc:
            what = f"the process that fetched it {exc}"
            if exc.code is None:  # the last word of this: what kept it from being done is told
                return {"error": f"{what}: {watch.error}" if watch.error else what, "again": False}
            # A signal is no verdict on the bundle; what it ended with by itself would come again.
            return {"error": what, "again": exc.code < 0}
        finally:
            watch.child = 0


def _wait(watch: _Watch, seconds: float) -> None:
    end_ns = now_ns() + int(seconds * NS_PER_S)
    while now_ns() < end_ns:
        watch.tick()
        time.sleep(_TICK_S)


def shown(source: str) -> str:
    """Return an address without what may be secret in it: the login, the query and the fragment."""
    scheme, mark, rest = source.partition("://")
    if not mark:
        return source
    host, slash, path = rest.partition("/")
    path = path.partition("?")[0].partition("#")[0]
    return f"{scheme}://{host.rpartition('@')[2].partition('?')[0]}{slash}{path}"
