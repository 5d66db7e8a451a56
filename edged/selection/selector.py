"""The choice for one bundle: look up what is known, measure what is not, choose, and say why each other one lost.

A start that finds everything known starts no process. What was measured is kept under a key of all that changes its
figures; a failure that may have been the moment's fault (a missing device, a time-out, memory) is not kept.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from delegates import select
from delegates.base import Probe
from delegates.select import Entry, Measured
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.clock import NS_PER_S, now_ns
from edged.config import SelectionConfig
from edged.engines.base import Engine
from edged.engines.candidate import Candidate
from edged.errors import UnavailableError
from edged.selection import locks
from edged.selection.children import Measurer
from edged.selection.keeping import Keeping
from edged.selection.wish import Option, Wish, options

log = logging.getLogger(__name__)

# Less time than this is no time to measure in.
LEAST_S = 1.0
_SERVES = frozenset({"chosen", "slower", "stand-in", "agrees"})

Note = Callable[[str], None]


@dataclass(frozen=True)
class Miss:
    """A delegate that was asked for by name, and cannot serve on any runtime. reason: verdict and reason.

    retry: what to try again in the background, None when trying again is no use.
    """

    delegate: str
    reason: str
    retry: Candidate | None = None

    def __str__(self) -> str:
        return f"{self.delegate}: {self.reason}"


@dataclass(frozen=True)
class Selection:
    """What serves a bundle. rows: every candidate with its verdict. chosen: what serves.

    stand_in: the best candidate of the CPU, None where it cannot run the model. misses: what was asked for by name and
    cannot serve. p99_us: of the chosen one.
    """

    rows: tuple[Measured, ...]
    chosen: Candidate
    stand_in: Candidate | None
    misses: tuple[Miss, ...] = ()
    p99_us: float | None = None

    @property
    def missed(self) -> str:
        """The misses in words, "" when there are none."""
        return "; ".join(map(str, self.misses))


class NothingAgreesError(UnavailableError):
    """No candidate can serve the bundle. rows: each with its reason. misses: see `Selection`."""

    def __init__(self, bundle: Bundle, rows: tuple[Measured, ...], misses: tuple[Miss, ...]) -> None:
        reasons = "; ".join(f"{row.label}: {row.reason or row.verdict}" for row in rows)
        super().__init__(str(bundle.path), "nothing here can serve it", reasons)
        self.rows, self.misses = rows, misses


class Selector:
    """The choices of one state directory. Any thread; one measurement at a time, also over processes.

    candidate_s, total_s: see SelectionConfig.
    """

    def __init__(
        self, state_dir: Path, candidate_s: float = SelectionConfig.candidate_s,
        total_s: float = SelectionConfig.total_s,
    ) -> None:  # fmt: skip
        self.state_dir, self.candidate_s, self.total_s = state_dir, candidate_s, total_s
        self._measurer = Measurer()
        self.keeping = Keeping(state_dir, self._measurer)
        self._lock = threading.Lock()
        self._announcing = threading.Lock()
        self._presence: locks.Presence | None = None

    @property
    def file(self) -> Path:
        """Where the results are kept."""
        return self.keeping.store.path

    def announce(self) -> None:
        """Say that this process serves from the state directory, until `stop`. Any thread."""
        with self._announcing:
            if not self._measurer.stopped.is_set():
                self._presence = self._presence or locks.Presence(self.state_dir)

    def stop(self) -> None:
        """End the measurement that runs now, if one does, and start no other. Any thread."""
        self._measurer.stop()
        self.keeping.marks.let_go()
        with self._announcing:
            if self._presence is not None:
                self._presence.close()

    def choose(
        self, bundle: Bundle, wish: Wish, note: Note = log.info, *, fresh: bool = False, aside: bool = False
    ) -> Selection:
        """Return what serves. note: is told, in a line, of each step that takes time. fresh: measure everything again.

        aside: something serves the bundle meanwhile, and is not to be held up.
        Raises NothingAgreesError, KeyError for an unknown delegate, ValueError for an unknown option.
        """
        with ExitStack() as stack:
            tried = _Choosing(self, bundle, wish, note, _How(fresh, aside), stack).tried()
        return _decided(bundle, tried, wish)

    def agrees(self, bundle: Bundle, candidate: Candidate, policy: ThreadPolicy) -> bool:
        """Whether it was measured as it is now, and may serve. Starts nothing."""
        row = self.keeping.known(bundle, Option.only(candidate), candidate, policy)
        return row is not None and row.verdict == "agrees"

    def open(
        self, bundle: Bundle, candidate: Candidate, policy: ThreadPolicy, within_s: float | None = None
    ) -> Engine:  # fmt: skip
        """Open what was chosen, as it serves, within candidate_s where nothing else is said; see `Keeping.opened`."""
        return self.keeping.opened(bundle, candidate, policy, self.candidate_s if within_s is None else within_s)

    @contextlib.contextmanager
    def measuring(self, note: Note) -> Iterator[None]:
        """Hold the right to measure; what others measured meanwhile is known afterwards."""

        def waiting() -> None:
            note("waiting for another process that measures")

        with self._lock, locks.exclusively(self.state_dir, self._measurer.stopped, waiting):
            self.keeping.store.refresh()
            yield


@dataclass(frozen=True)
class _Tried:
    """A candidate and what became of it; candidate: None where no runtime can bring the option in."""

    option: Option
    candidate: Candidate | None
    row: Measured

    @property
    def entry(self) -> Entry:
        return Entry(self.row, self.option.cpu, self.option.asked)


@dataclass(frozen=True)
class _How:
    """See `choose`."""

    fresh: bool
    aside: bool


class _Choosing:
    """One call of `choose`: takes the lock when the first thing is not known, and not before."""

    def __init__(self, selector: Selector, bundle: Bundle, wish: Wish, note: Note, how: _How, stack: ExitStack) -> None:
        self._selector, self._bundle, self._wish, self._note, self._how = selector, bundle, wish, note, how
        self._keeping, self._stack, self._holding = selector.keeping, stack, False
        self._end_ns, self._serves = 0, False
        self._probes: dict[str, Probe] = {}

    def tried(self) -> list[_Tried]:
        """Return every candidate, in the order of preference."""
        wanted = options(self._wish, self._found())
        # The CPU first: whatever time is left for the others, something serves.
        order = sorted(range(len(wanted)), key=lambda place: not wanted[place].cpu)
        found = {place: self._option(wanted[place]) for place in order}
        return [one for place in range(len(wanted)) for one in found[place]]

    def _found(self) -> Sequence[str]:
        """Return what is here beside the CPU, for `auto`."""
        if self._wish.wanted is not None:
            return ()
        known = None if self._how.fresh else self._keeping.found()
        if known is None:
            self._hold()
            known = self._keeping.found_now(self._note)
        return known

    def _hold(self) -> None:
        if not self._holding:
            self._stack.enter_context(self._selector.measuring(self._note))
            self._holding = True
            self._end_ns = now_ns() + int(self._selector.total_s * NS_PER_S)

    def _option(self, option: Option) -> list[_Tried]:
        if not option.runtimes:
            needs = " or ".join(sorted(option.delegate.runtimes))
            reason = f"needs {needs}, which is not installed or not allowed here"
            name = option.delegate.name
            row = Measured(name, "", name, 1, option.options, "unavailable", reason)
            return [_Tried(option, None, row)]
        found: list[_Tried] = []
        for count in self._wish.thread_counts():
            # Threads of the CPU do nothing for a delegate that takes everything, or that does not serve.
            if found and not option.cpu and not any(_leaves_some(one.row) for one in found):
                break
            for candidate in option.candidates(count):
                found.append(_Tried(option, candidate, self._row(option, candidate)))
                if found[-1].row.verdict == "unavailable" and not option.cpu:
                    return found  # the probe knows no runtimes: one row tells it
        return found

    def _row(self, option: Option, candidate: Candidate) -> Measured:
        known = self._known(option, candidate)
        if known is None and not self._holding:
            self._hold()
            known = self._known(option, candidate)
        row = self._measured(option, candidate) if known is None else known
        self._serves |= option.cpu and row.verdict == "agrees"
        return row

    def _known(self, option: Option, candidate: Candidate) -> Measured | None:
        if self._how.fresh:
            return None
        return self._keeping.known(self._bundle, option, candidate, self._wish.policy)

    def _measured(self, option: Option, candidate: Candidate) -> Measured:
        started_ns = now_ns()
        # Something has to serve: until a candidate of the CPU can, each is tried, in time of its own.
        if option.cpu and not self._serves:
            row = self._within(self._selector.candidate_s, option, candidate)
            self._end_ns += now_ns() - started_ns
            return row
        left_s = (self._end_ns - started_ns) / NS_PER_S
        if left_s < LEAST_S:
            what = f"no time was left of the {self._selector.total_s:g} s for all candidates (selection.total_s)"
            return replace(candidate.unmeasured(), reason=what)
        return self._within(min(self._selector.candidate_s, left_s), option, candidate)

    def _within(self, seconds: float, option: Option, candidate: Candidate) -> Measured:
        probe = self._probe(option)
        if not probe.available:
            why = f"{probe.reason} ({probe.fix})" if probe.fix else probe.reason
            return replace(candidate.unmeasured(), verdict="unavailable", reason=why)
        self._note(f"trying {self._bundle.manifest.name} on {candidate.label} (first start with it)")
        subject = self._keeping.subject(self._bundle, option, candidate, self._wish.policy)
        whole = seconds >= self._selector.candidate_s
        return self._keeping.measured(subject, seconds, fresh=self._how.fresh, whole=whole, aside=self._how.aside)

    def _probe(self, option: Option) -> Probe:
        if option.ident not in self._probes:
            self._probes[option.ident] = self._keeping.probed(option)
        return self._probes[option.ident]


def _decided(bundle: Bundle, tried: Sequence[_Tried], wish: Wish) -> Selection:
    choice = select.choose([one.entry for one in tried])
    tried = [replace(one, row=row) for one, row in zip(tried, choice.rows, strict=True)]
    misses = () if wish.wanted is None else tuple(_misses(tried))
    chosen = None if choice.chosen is None else tried[choice.chosen]
    if chosen is None or chosen.candidate is None:
        raise NothingAgreesError(bundle, choice.rows, misses)
    stand_in = None if choice.stand_in is None else tried[choice.stand_in].candidate
    return Selection(choice.rows, chosen.candidate, stand_in, misses, chosen.row.p99_us)


def _misses(tried: Sequence[_Tried]) -> Iterator[Miss]:
    """Yield the delegates asked for by name that cannot serve on any runtime."""
    for ident in dict.fromkeys(one.option.ident for one in tried if one.option.asked):
        group = [one for one in tried if one.option.ident == ident]
        if any(one.row.verdict in _SERVES for one in group):
            continue
        first = group[0].row
        again = next((one.candidate for one in group if _may_pass(one)), None)
        yield Miss(first.delegate, f"{first.verdict}: {first.reason}", again)


def _leaves_some(row: Measured) -> bool:
    return row.verdict == "agrees" and row.mapping == "partial"


def _may_pass(one: _Tried) -> bool:
    """Whether another try, later, may find it in order. Of what crashed or hung, `AGAIN` says when."""
    moment = one.row.verdict in ("unavailable", "failed", "unmeasured") and not (one.row.crashed or one.row.hung)
    return moment and not one.option.cpu
