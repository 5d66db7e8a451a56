"""What may serve a model, as its configuration says, spelled out into candidates."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from delegates.base import Delegate
from edged.affinity import ThreadPolicy
from edged.engines.candidate import Candidate

Wanted = Sequence[tuple[str, Mapping[str, Any]]]

CPU = "cpu"
# More helps little: the models of edge boxes are small, and a box has other work.
THREADS = (1, 2, 4)


@dataclass(frozen=True)
class Wish:
    """wanted: delegates with their options, None for whatever is here. runtimes: package names, the preferred first.

    threads: of one inference, or auto for each of 1, 2 and 4 that there are CPUs for. policy: of the serving thread.
    """

    wanted: Wanted | None
    runtimes: Sequence[str]
    threads: int | Literal["auto"] = 1
    policy: ThreadPolicy = field(default_factory=ThreadPolicy)

    def thread_counts(self) -> tuple[int, ...]:
        """Return the numbers of threads to try."""
        if self.threads != "auto":
            return (self.threads,)
        cpus = len(self.policy.cpus) or len(os.sched_getaffinity(0))
        return tuple(count for count in THREADS if count <= cpus)

    def of(self, candidate: Candidate) -> Wish:
        """Return the wish for this accelerator alone, beside the CPU as it was wanted."""
        cpu = [(name, given) for name, given in self.wanted or ((CPU, {}),) if name == CPU]
        return replace(self, wanted=((candidate.delegate, json.loads(candidate.options)), *cpu))


@dataclass(frozen=True)
class Option:
    """One delegate with its options, on every runtime that can bring it in. asked: it may be chosen."""

    name: str
    options: str
    delegate: Delegate
    runtimes: tuple[str, ...]
    asked: bool = True

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any], wish: Wish, *, asked: bool = True) -> Option:
        """Make one. Raises KeyError for an unknown name, ValueError for an unknown option."""
        candidate = Candidate.of("", name, options)
        delegate = candidate.create()
        runtimes = tuple(runtime for runtime in wish.runtimes if runtime in delegate.runtimes)
        return cls(name, candidate.options, delegate, runtimes, asked)

    @classmethod
    def only(cls, candidate: Candidate) -> Option:
        """Make the one of this candidate."""
        return cls(candidate.delegate, candidate.options, candidate.create(), (candidate.runtime,))

    @property
    def cpu(self) -> bool:
        """Whether it is the CPU, served in this process."""
        return not self.delegate.isolated

    @property
    def ident(self) -> str:
        """Name and options, as a key."""
        return ident(self.name, self.options)

    def candidates(self, threads: int) -> list[Candidate]:
        """Return one for each runtime."""
        return [Candidate(runtime, self.name, self.options, threads) for runtime in self.runtimes]


def ident(name: str, options: str) -> str:
    """Return the key of a delegate with its options (canonical JSON)."""
    return f"{name} {options}"


def options(wish: Wish, found: Sequence[str]) -> list[Option]:
    """Return what to try, in the order of preference. found: for `auto`, what is here beside the CPU.

    The CPU is always among them: it stands in for the others. Raises as `Option.of`.
    """
    wanted = [(CPU, {}), *((name, {}) for name in found)] if wish.wanted is None else wish.wanted
    named = [Option.of(name, given, wish) for name, given in wanted]
    if not any(option.cpu for option in named):
        named.append(Option.of(CPU, {}, wish, asked=False))
    return named
