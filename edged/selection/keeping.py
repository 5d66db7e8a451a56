"""What is known of candidates on this machine, and how it comes to be known: probes, measurements, marks of crashes."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from delegates import devices, registry
from delegates.base import Delegate, Probe
from delegates.select import Measured
from edged import childprocess
from edged.affinity import ThreadPolicy
from edged.bundle import GOLDEN, Bundle
from edged.engines import golden
from edged.engines.base import Engine, EngineLostError
from edged.engines.candidate import Candidate
from edged.engines.opening import open_as_served
from edged.selection import finding
from edged.selection.children import Measurer
from edged.selection.key import NOTHING, Installed, Key, key
from edged.selection.store import Store
from edged.selection.suspects import Marks
from edged.selection.wish import CPU, Option, ident

if TYPE_CHECKING:
    from edged.compilecache import CompileCache

log = logging.getLogger(__name__)

AGAIN = (
    "tried again when its library or the model changes, or by `edged delegates -c FILE --remeasure` "
    "(restart the daemon then)"
)


@dataclass(frozen=True)
class Subject:
    """What a measurement is of."""

    bundle: Bundle
    option: Option
    candidate: Candidate
    policy: ThreadPolicy
    installed: Installed

    @property
    def key(self) -> Key:
        """What its result depends on."""
        return key(self.bundle, self.candidate, self.policy, self.installed)


@dataclass
class _Compiled:
    """path: where the delegate keeps the compiled form, None for nowhere. good: it opened, and its answers agree.
    bad: its answers do not, or its process crashed. Neither: it says nothing of the form, e.g. there was no device."""

    path: Path | None
    good: bool = False
    bad: bool = False


class _WrongError(RuntimeError):
    """The answers are not those of the golden samples."""


class Keeping:
    """The memory of one state directory; measurer: starts the children."""

    def __init__(self, state_dir: Path, measurer: Measurer) -> None:
        self.store, self.marks, self._measurer = Store(state_dir), Marks(state_dir), measurer
        self._state_dir = state_dir
        # Directories of compiled forms with which a delegate was opened here.
        self._opened: set[Path] = set()

    @cached_property
    def _cache(self) -> CompileCache:
        from edged.compilecache import CompileCache  # noqa: PLC0415  # for delegates that compile

        return CompileCache(self._state_dir)

    def known(self, bundle: Bundle, option: Option, candidate: Candidate, policy: ThreadPolicy) -> Measured | None:
        """Return the row that is kept, or that a mark of an earlier start tells; None to measure. Starts nothing."""
        installed = NOTHING if option.cpu else self.store.installed(option.ident)
        if installed is None:
            return None
        found = key(bundle, candidate, policy, installed)
        if not option.cpu and self.marks.left(found):
            reason = f"an earlier start ended while it was being opened; {AGAIN}"
            self.store.keep(found, replace(candidate.unmeasured(), verdict="suspect", reason=reason))
            self.marks.clear(found)
        row = self.store.row(found)
        return None if row is None else candidate.row(row)

    def probed(self, option: Option) -> Probe:
        """Look for it, in a child process, and remember its library."""
        if option.cpu:
            return Probe(available=True)
        from edged import probing  # noqa: PLC0415  # a box that serves on the CPU needs none

        found = probing.probe(option.name, json.loads(option.options), stopped=self._measurer.stopped)
        self._keep_installed(option.name, option.options, option.delegate, found)
        return found

    def subject(self, bundle: Bundle, option: Option, candidate: Candidate, policy: ThreadPolicy) -> Subject:
        """Return what is measured or opened, as its last probe told of it."""
        installed = None if option.cpu else self.store.installed(option.ident)
        return Subject(bundle, option, candidate, policy, installed or NOTHING)

    def found(self) -> tuple[str, ...] | None:
        """Return what `auto` found beside the CPU when the machine looked as it does now; None when it never did."""
        return self.store.found(finding.looks())

    def found_now(self, note: Callable[[str], None]) -> tuple[str, ...]:
        """Look for everything that can be looked for without options, in child processes."""
        from edged import probing  # noqa: PLC0415  # as above

        note("looking for accelerators (first start here, or something was plugged in or installed)")
        wanted = [name for name, _ in probing.everything() if name != CPU]
        looks, stopped = finding.looks(), self._measurer.stopped
        probes = zip(wanted, probing.probe_each([(name, {}) for name in wanted], stopped=stopped), strict=True)
        available = {name: probe for name, probe in probes if probe.available}
        for name, probe in available.items():
            self._keep_installed(name, "{}", registry.create(name, {}), probe)
        found = tuple(available)
        if stopped.is_set():
            return found
        self.store.keep_found(looks, found)
        return found

    def measured(
        self, subject: Subject, seconds: float, *, fresh: bool = False, whole: bool = True, aside: bool = False
    ) -> Measured:
        """Measure in a child process, and keep what another start would find the same.

        fresh: as if never before. whole: `seconds` are what a candidate gets, so that one which is not done hangs.
        aside: beside what serves, at ordinary priority, so that it does not hold up requests.
        """
        from edged.engines.measure import Job  # noqa: PLC0415  # a start that knows everything measures nothing

        bundle, found, row = subject.bundle, subject.key, subject.candidate.unmeasured()
        policy = replace(subject.policy, realtime="off") if aside else subject.policy
        with self._marked(found, subject.option.delegate, row.label), self._compiled(subject, fresh=fresh) as compiled:
            where = bundle.path.absolute()
            job = Job(where, bundle.model_sha256, subject.candidate, policy, compiled.path, seconds)
            row = self._measurer.measure(job, row)
            compiled.good, compiled.bad = row.verdict == "agrees", row.verdict == "refused" or row.crashed
        if row.verdict in ("agrees", "refused"):
            self.store.keep(found, row)
            if subject.option.delegate.caches:
                self._cache.prune(self.store.keys())
        elif (row.crashed or (row.hung and whole)) and not subject.option.cpu:
            self.store.keep(found, replace(row, verdict="suspect", reason=f"{row.reason}; {AGAIN}"))
        elif not self._measurer.stopped.is_set():
            self.store.forget(found)  # what it was before is no longer true
        return row

    def opened(self, bundle: Bundle, candidate: Candidate, policy: ThreadPolicy, seconds: float) -> Engine:
        """Open a candidate to serve: code of a vendor under a mark, with what it compiled before where that is intact.

        Whoever serves with it compares its answers with the golden samples before. It is done here as well where it
        tells whether to keep the compiled form: that is new, or the delegate is opened with it once more, since it
        failed. Raises what `opening.open_as_served` does, and RuntimeError when the answers are wrong.
        """
        option = Option.only(candidate)
        if option.cpu:
            return open_as_served(bundle, candidate, policy)
        subject = self.subject(bundle, option, candidate, policy)
        marked = self._marked(subject.key, option.delegate, candidate.label)
        with marked, self._compiled(subject, fresh=False) as compiled:
            # It is handed out as it was sealed, or empty.
            was_sealed = compiled.path is not None and any(compiled.path.iterdir())
            engine = open_as_served(bundle, candidate, policy, cache=compiled.path, timeout_s=seconds)
            if compiled.path is not None and self._in_doubt(compiled.path, was_sealed):
                _require_golden(engine, bundle)
            compiled.good = True
        return engine

    def _in_doubt(self, path: Path, was_sealed: bool) -> bool:
        again = path in self._opened
        self._opened.add(path)
        return again or not was_sealed

    @contextlib.contextmanager
    def _marked(self, found: Key, delegate: Delegate, label: str) -> Iterator[None]:
        if not delegate.isolated:
            yield
            return
        with self.marks.opening(found, label):
            yield

    @contextlib.contextmanager
    def _compiled(self, subject: Subject, *, fresh: bool) -> Iterator[_Compiled]:
        """Hand out the directory of the compiled form: sealed afterwards when it is `good`, thrown away when `bad`.

        There is none without golden samples: nothing would tell a damaged form from a right one.
        """
        found = subject.key
        compiled = _Compiled(self._prepared(subject, found, fresh=fresh))
        try:
            yield compiled
        except EngineLostError as exc:
            compiled.bad = childprocess.own_doing(exc.code)
            raise
        except _WrongError:
            compiled.bad = True
            raise
        finally:
            if compiled.path is not None:
                self._settle(compiled.path, compiled, found)

    def _prepared(self, subject: Subject, found: Key, *, fresh: bool) -> Path | None:
        if not subject.option.delegate.caches or GOLDEN not in subject.bundle.files:
            return None
        path = self._cache.prepared(found)
        if not fresh or path is None:
            return path
        if not self._cache.discard(path, "it is measured again"):
            log.warning("%s is measured without its compiled form, which is in use", subject.candidate.label)
            return None
        return self._cache.prepared(found)

    def _settle(self, path: Path, compiled: _Compiled, found: Key) -> None:
        if compiled.good:
            self._cache.seal(path, found)
        elif compiled.bad:
            self._cache.discard(path, "the delegate crashed with it, or its answers were wrong")
        else:
            self._cache.release(path)

    def _keep_installed(self, name: str, options: str, delegate: Delegate, found: Probe) -> None:
        """Remember it, with the library as it was named: a link may lead elsewhere tomorrow."""
        if not found.available:
            return
        given = json.loads(options).get("library", "")
        path = given if given.startswith("/") else found.library
        usb = f"/{devices.USB}"
        # Its node has another name each time it is plugged in.
        device = usb if found.device.startswith(f"{usb}/") else found.device
        told = Installed(path, found.version, device, found.needs, _bare_names(delegate))
        self.store.keep_installed(ident(name, options), told)


def _bare_names(delegate: Delegate) -> tuple[str, ...]:
    """Return those of the names of its library that the system's search path leads to a file."""
    from delegates.external import LibraryDelegate  # noqa: PLC0415  # a box that serves on the CPU needs none

    names = delegate.libraries if isinstance(delegate, LibraryDelegate) else ()
    return tuple(name for name in names if "/" not in name)


def _require_golden(engine: Engine, bundle: Bundle) -> None:
    """Raise _WrongError, the engine closed, unless it reproduces the golden samples."""
    samples = bundle.golden()
    with contextlib.ExitStack() as stack:
        stack.callback(engine.close)
        wrong = None if samples is None else golden.disagreement(engine, bundle, samples)
        if wrong is not None:
            msg = f"wrong numbers: {wrong}"
            raise _WrongError(msg)
        stack.pop_all()
