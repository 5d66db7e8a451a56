"""Which delegates are here, each looked for in a child process: a vendor's library can crash or hang when loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

from delegates import registry
from delegates.base import Probe
from edged import childprocess, limits
from edged.limits import Limits, Watch
from edged.shown import plain

Wanted = tuple[str, Mapping[str, Any]]

TIMEOUT_S = 10.0
# Looking takes far less, and several look at once.
_MEMORY = 1 << 30
_BROKEN = "install the library again, made for this system, or leave this delegate out"


class _Guard:
    """The watch over a child, and over whether its answer is still wanted."""

    def __init__(self, watch: Watch, stopped: Event) -> None:
        self._watch, self._stopped, self.broken = watch, stopped, ""

    def tick(self) -> bool:
        if self._stopped.is_set():
            self._watch.kill()
            self.broken = "was stopped"
            return True
        over, self.broken = self._watch.tick(), self._watch.broken
        return over


def probe(
    name: str, options: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S, *, stopped: Event | None = None
) -> Probe:
    """Look for one delegate of the registry. Whatever is wrong, with its name and options too, is the reason.

    stopped: ends the looking once it is set; then nothing is available.
    """
    try:
        # To import another package may end the process that does it.
        delegate = None if registry.foreign(name) else registry.create(name, options)
    except (KeyError, ValueError) as exc:
        return Probe(available=False, reason=plain(str(exc.args[0])), fix="mend `delegates` in the configuration")
    if delegate is not None and not delegate.isolated:  # nothing of a vendor's runs
        return delegate.probe()
    return _probe(name, options, timeout_s, stopped or Event())


def probe_each(wanted: Sequence[Wanted], timeout_s: float = TIMEOUT_S, *, stopped: Event | None = None) -> list[Probe]:
    """Look for several at once; the answers stand in the order of what was wanted. stopped: see `probe`."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  # a daemon that serves on the CPU needs none

    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda item: probe(item[0], item[1], timeout_s, stopped=stopped), wanted))


def everything() -> tuple[Wanted, ...]:
    """Return every delegate that can be looked for without options, the built-in ones first."""
    return tuple((name, {}) for name in registry.names() if name not in registry.WITH_OPTIONS_ONLY)


def told(name: str, options: Mapping[str, Any] | None = None) -> str:
    """Return the name that a delegate is told by: its own, the registry's where it cannot be constructed."""
    if registry.foreign(name):
        return name
    try:
        return registry.create(name, options).name
    except (KeyError, ValueError):
        return name


def _probe(name: str, options: Mapping[str, Any] | None, timeout_s: float, stopped: Event) -> Probe:
    if stopped.is_set():
        return Probe(available=False, reason="it was not looked for any more")
    given = json.dumps(dict(options or {}))
    with childprocess.start_answering("delegates.probe", name, given=given) as child:
        try:
            memory = min(_MEMORY, limits.available() // 2)
            watch = Watch(child.pid, Limits(timeout_s, memory))
            told = childprocess.guarded_answer(child, _Guard(watch, stopped), "it was probed")
            return Probe(**{**told, "needs": tuple(told["needs"])})
        except childprocess.NoAnswerError as exc:
            return Probe(available=False, reason=f"its process {plain(str(exc))}", fix=_BROKEN)
