"""What is known of candidates on this machine, and how it comes to be known: probes, measurements, marks of crashes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from delegates.base import Delegate, Probe
from delegates.select import Measured
from edged.affinity import ThreadPolicy
from edged.bundle import GOLDEN, Bundle
from edged.engines import golden
from edged.engines.base import Engine
from edged.engines.candidate import Candidate
from edged.engines.opening import open_as_served
from edged.selection import finding
from edged.selection.children import Measurer
from edged.selection.key import Key, key
from edged.selection.store import Store
from edged.selection.suspects import Marks
from edged.selection.wish import CPU, Option

if TYPE_CHECKING:
    from edged.compilecache import CompileCache

AGAIN = "tried again when its library or the model changes, or by `edged delegates --remeasure`"


@dataclass(frozen=True)
class Subject:
    """What a measurement is of. library: path of the vendor's library, "" for none."""

    bundle: Bundle
    option: Option
    candidate: Candidate
    policy: ThreadPolicy
    library: str

    @property
    def key(self) -> Key:
        """What its result depends on."""
        return key(self.bundle, self.candidate, self.policy, self.library)


@dataclass
class _Compiled:
    """path: where the delegate keeps the compiled form, None for nowhere. good: it opened, and its answers agree."""

    path: Path | None
    good: bool = False


class Keeping:
    """The memory of one state directory; measurer: starts the children."""

    def __init__(self, state_dir: Path, measurer: Measurer) -> None:
        self.store, self.marks, self._measurer = Store(state_dir), Marks(state_dir), measurer
        self._state_dir = state_dir

    @cached_property
    def _cache(self) -> CompileCache:
        from edged.compilecache import CompileCache  # noqa: PLC0415  # for delegates that compile

        return CompileCache(self._state_dir)

    def known(self, bundle: Bundle, option: Option, candidate: Candidate, policy: ThreadPolicy) -> Measured | None:
        """Return the row that is kept, or that a mark of an earlier start tells; None to measure. Starts nothing."""
        library = "" if option.cpu else self.store.library(option.ident)
        if library is None:
            return None
        found = key(bundle, candidate, policy, library)
        if not option.cpu and self.marks.left(found):
            reason = f"an earlier start ended while it was being opened; {AGAIN}"
            self.store.keep(found, replace(blank(candidate), verdict="suspect", reason=reason))
            self.marks.clear(found)
        return self.store.row(found)

    def probed(self, option: Option) -> Probe:
        """Look for it, in a child process, and remember its library."""
        if option.cpu:
            return Probe(available=True)
        from edged import probing  # noqa: PLC0415  # a box that serves on the CPU needs none

        found = probing.probe(option.name, json.loads(option.options))
        return self._keep_library(option.ident, option.options, found)

    def found(self) -> tuple[str, ...] | None:
        """Return what `auto` found beside the CPU when the machine looked as it does now; None when it never did."""
        return self.store.found(finding.looks())

    def found_now(self, note: Callable[[str], None]) -> tuple[str, ...]:
        """Look for everything that can be looked for without options, in child processes."""
        from edged import probing  # noqa: PLC0415  # as above

        note("looking for accelerators (first start here, or something was plugged in or installed)")
        wanted = [name for name, _ in probing.everything() if name != CPU]
        probes = dict(zip(wanted, probing.probe_each([(name, {}) for name in wanted]), strict=True))
        found = tuple(name for name, probe in probes.items() if probe.available)
        for name in found:
            self._keep_library(f"{name} {{}}", "{}", probes[name])
        self.store.keep_found(finding.looks(), found)
        return found

    def measured(self, subject: Subject, seconds: float, *, fresh: bool, whole: bool) -> Measured:
        """Measure in a child process, and keep what another start would find the same.

        fresh: as if never before. whole: `seconds` are what a candidate gets, so that one which is not done hangs.
        """
        from edged.engines.measure import Job  # noqa: PLC0415  # a start that knows everything measures nothing

        bundle, found, row = subject.bundle, subject.key, blank(subject.candidate)
        with self._marked(found, subject.option.delegate, row.label), self._compiled(subject, fresh=fresh) as compiled:
            where = bundle.path.absolute()
            job = Job(where, bundle.model_sha256, subject.candidate, subject.policy, compiled.path, seconds)
            row = self._measurer.measure(job, row)
            compiled.good = row.verdict == "agrees"
        if row.verdict in ("agrees", "refused"):
            self.store.keep(found, row)
            if subject.option.delegate.caches:
                self._cache.prune(self.store.keys())
        elif (row.crashed or (row.hung and whole)) and not subject.option.cpu:
            self.store.keep(found, replace(row, verdict="suspect", reason=f"{row.reason}; {AGAIN}"))
        return row

    def opened(self, bundle: Bundle, candidate: Candidate, policy: ThreadPolicy, seconds: float) -> Engine:
        """Open a candidate to serve: code of a vendor under a mark, with what it compiled before where that is intact.

        Raises what `opening.open_as_served` does, and RuntimeError when it does not reproduce the golden samples with
        what it keeps compiled.
        """
        option = Option(candidate.delegate, candidate.options, candidate.create(), (candidate.runtime,))
        if option.cpu:
            return open_as_served(bundle, candidate, policy)
        subject = Subject(bundle, option, candidate, policy, self.store.library(option.ident) or "")
        marked = self._marked(subject.key, option.delegate, candidate.label)
        with marked, self._compiled(subject, fresh=False) as compiled:
            engine = open_as_served(bundle, candidate, policy, cache=compiled.path, timeout_s=seconds)
            if compiled.path is not None:
                _require_golden(engine, bundle)
            compiled.good = True
        return engine

    @contextlib.contextmanager
    def _marked(self, found: Key, delegate: Delegate, label: str) -> Iterator[None]:
        if not delegate.isolated:
            yield
            return
        with self.marks.opening(found, label):
            yield

    @contextlib.contextmanager
    def _compiled(self, subject: Subject, *, fresh: bool) -> Iterator[_Compiled]:
        """Hand out the directory of the compiled form, sealed afterwards when it is `good`, else thrown away.

        There is none without golden samples: nothing would tell a damaged form from a right one.
        """
        if not subject.option.delegate.caches or GOLDEN not in subject.bundle.files:
            yield _Compiled(None)
            return
        found = subject.key
        if fresh and (old := self._cache.prepared(found)) is not None:
            self._cache.discard(old, "it is measured again")
        compiled = _Compiled(self._cache.prepared(found))
        try:
            yield compiled
        finally:
            if compiled.path is not None and compiled.good:
                self._cache.seal(compiled.path, found)
            elif compiled.path is not None:
                self._cache.discard(compiled.path, "the delegate did not open with it, or its answers were wrong")

    def _keep_library(self, ident: str, options: str, found: Probe) -> Probe:
        """Remember where the library is, as it was named: a link may lead elsewhere tomorrow."""
        given = json.loads(options).get("library", "")
        path = given if given.startswith("/") else found.library
        if found.available and self.store.library(ident) != path:
            self.store.keep_library(ident, path)
        return replace(found, library=path)


def blank(candidate: Candidate) -> Measured:
    """Return the row of a candidate of which nothing is known."""
    one = candidate
    return Measured(one.label, one.runtime, one.create().name, one.threads, one.options)


def _require_golden(engine: Engine, bundle: Bundle) -> None:
    """Raise RuntimeError, the engine closed, unless it reproduces the golden samples."""
    samples = bundle.golden()
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)
        wrong = None if samples is None else golden.disagreement(engine, bundle, samples)
        if wrong is not None:
            msg = f"wrong numbers: {wrong}"
            raise RuntimeError(msg)
        stack.pop_all()
