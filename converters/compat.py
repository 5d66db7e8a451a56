"""Whether a converted file can load on every runtime of the fleet, and which converter switches make it load.

Judged by op versions, from the table that is measured from the runtimes: min_runtime_version in a file's metadata is
too low for some int8 and int16 ops. That a runtime loads the file is proven by loading it, where it is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from converters.options import MODES
from converters.truth import Facts
from delegates import registry
from edged.checks import hint
from edged.engines import op_versions, tflite_coverage
from edged.engines.op_versions import Missing
from edged.errors import UsageError

_WHERE = "--target"
_RELEASE = re.compile(r"(?P<name>[^\s=]+)(?:(?:\s*==\s*|\s+)(?P<version>[0-9][0-9A-Za-z.+]*))?")


@dataclass(frozen=True)
class Target:
    """A runtime or a delegate of the fleet. name: in full, `tflite-runtime 2.13.0`, or the delegate's.

    runtime: the package name, "" for a delegate. judge: the measured release that stands for it. asked: a person named
    it; else it is the newest measured release of a runtime, for a fleet of which nothing is known.
    """

    name: str
    runtime: str = ""
    judge: str = ""
    asked: bool = True

    @property
    def note(self) -> str:
        """Say so where another release stands for this one; empty where it was measured itself."""
        return (
            ""
            if self.name == self.judge or not self.runtime
            else f"{self.name} was not measured: judged as {self.judge}"
        )


@dataclass(frozen=True)
class Judgement:
    """Whether one runtime can load the file. words: the same for a person. how: what the judgement rests on."""

    target: str
    ok: bool
    missing: tuple[Missing, ...]
    words: str
    how: str = "by table"


@dataclass(frozen=True)
class CompatFlags:
    """What the converter is told so that a file loads on older runtimes; each costs something, so all are off.

    per_tensor_dense: dense weights of the dynamic range get one scale in all, not one for each output
    (`_experimental_disable_per_channel_quantization_for_dense_layers`).
    float_ops: builtin ops that stay float in an int8 model (`denylisted_ops` of the quantizer), sorted.
    """

    per_tensor_dense: bool = False
    float_ops: tuple[str, ...] = ()

    def __or__(self, other: CompatFlags) -> CompatFlags:
        float_ops = tuple(sorted({*self.float_ops, *other.float_ops}))
        return CompatFlags(self.per_tensor_dense or other.per_tensor_dense, float_ops)

    def words(self) -> tuple[str, ...]:
        """Say what is on, one sentence each."""
        dense = ("dense weights have one scale in all, for older runtimes",) if self.per_tensor_dense else ()
        return (*dense, *(f"{op} stays float, for older runtimes" for op in self.float_ops))


@dataclass(frozen=True)
class Rule:
    """A cure: in `modes` the converter writes `op` in `version`; with `flags`, in the version `cured`."""

    op: str
    version: int
    cured: int
    modes: frozenset[str]
    flags: CompatFlags

    def cures(self, missing: Missing, quantize: str) -> bool:
        """Whether the runtime that lacks this has what the converter writes with the flags instead."""
        same = not missing.custom and (missing.op, missing.needed) == (self.op, self.version)
        return same and quantize in ("", *self.modes) and missing.lowest <= self.cured <= missing.highest


# Measured with TensorFlow 2.21; a test converts each of them, without and with the flags.
_WHOLE = frozenset(name for name, mode in MODES.items() if mode.needs_kind == "int8")
_INT8 = {"EXP": 2, "GELU": 2, "LOG": 2, "SQRT": 2, "TILE": 3}
RULES: tuple[Rule, ...] = (
    Rule("FULLY_CONNECTED", 12, 9, frozenset({"dynamic"}), CompatFlags(per_tensor_dense=True)),
    *(Rule(op, version, 1, _WHOLE, CompatFlags(float_ops=(op,))) for op, version in _INT8.items()),
)


def targets(given: Sequence[str]) -> tuple[Target, ...]:
    """Read `--target`: a runtime, with a release or without (`tflite-runtime==2.13.0`, `tflite-runtime 2.13`), or a
    delegate. Without a release the newest measured one is meant, and where no runtime is named, that of every runtime.

    Raises UsageError for a name that is not known, and for a release older than every one that was measured.
    """
    asked = tuple(dict.fromkeys(_target(text.strip()) for text in given))
    if any(target.runtime for target in asked):
        return asked
    return (*asked, *(_newest(name, asked=False) for name in op_versions.RUNTIMES))


def runtimes(fleet: Iterable[Target]) -> tuple[str, ...]:
    """Return the runtimes that a person named, by package name, each once."""
    return tuple(dict.fromkeys(target.runtime for target in fleet if target.runtime and target.asked))


def delegates(fleet: Iterable[Target]) -> tuple[str, ...]:
    """Return the delegates that a person named."""
    return tuple(target.name for target in fleet if not target.runtime)


def delegate_names() -> tuple[str, ...]:
    """Return every delegate that can be a target: one of which something can be told."""
    return tflite_coverage.names()


def judge(ops: Mapping[str, int], custom: Iterable[str], fleet: Iterable[Target]) -> list[Judgement]:
    """Judge every runtime of the fleet; delegates are a matter of coverage.

    ops: op → the highest version in the file, custom ops among them or not. custom: the custom ops, Flex ones too; not
    those that a device registers by itself.
    """
    named = tuple(custom)
    builtin = {op: version for op, version in ops.items() if op not in named}
    return [_judgement(target, builtin, named) for target in fleet if target.runtime]


def needs(facts: Facts, allowed: Iterable[str] = ()) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return what `judge` takes: builtin ops with their versions, and the custom and Flex ops but `allowed` ones."""
    foreign = {*facts.custom_ops, *facts.flex_ops}
    builtin = {op: version for op, version in facts.ops.items() if op not in foreign}
    return builtin, tuple(sorted(foreign - set(allowed)))


def cures(missing: Iterable[Missing], quantize: str = "") -> CompatFlags | None:
    """Return the flags with which one runtime has all that it lacks; None when it lacks nothing, or something stays.

    quantize: the mode that is converted to; "" stands for any.
    """
    flags = None
    for lack in missing:
        found = [rule.flags for rule in RULES if rule.cures(lack, quantize)]
        if not found:
            return None
        flags = (flags or CompatFlags()) | found[0]
    return flags


def cure(judged: Iterable[Judgement], quantize: str) -> CompatFlags | None:
    """Return the flags that cure every runtime that can be cured, or None; what is off helps no runtime wholly."""
    found = [flags for judgement in judged if (flags := cures(judgement.missing, quantize)) is not None]
    return None if not found else _all(found)


def _all(found: Sequence[CompatFlags]) -> CompatFlags:
    flags = CompatFlags()
    for more in found:
        flags |= more
    return flags


def _target(text: str) -> Target:
    match = _RELEASE.fullmatch(text)
    name = match["name"] if match else text
    if match is not None and name in op_versions.RUNTIMES:
        return _runtime(name, match["version"]) if match["version"] else _newest(name, asked=True)
    known = (*op_versions.RUNTIMES, *delegate_names())
    device = " or ".join(op_versions.RUNTIMES)
    if name == "cpu":
        raise UsageError(_WHERE, f"{text!r} takes every op that a runtime has", f"name {device}, or xnnpack")
    if name in set(registry.names()) - set(known):
        what = f"{text!r} has no table of its ops: nothing can be told of it here"
        raise UsageError(_WHERE, what, f"name the runtime of the device, {device}")
    if name not in known:
        what = f"{text!r} is no runtime and no delegate that is known{_hint(name, known)}"
        raise UsageError(_WHERE, what, f"known: {', '.join(known)}")
    if name != text:
        raise UsageError(_WHERE, f"{text!r}: a release can be told of a runtime, not of a delegate", f"use {name}")
    return Target(name)


def _hint(name: str, known: Sequence[str]) -> str:
    """The nearest name, or that of the delegate which is one of its words: `litert-gpu`."""
    return hint(name, known) or next((hint(word, [word]) for word in re.split("[-_ ]", name) if word in known), "")


def _newest(name: str, *, asked: bool) -> Target:
    release = op_versions.releases(name)[-1]
    return Target(release, name, release, asked)


def _runtime(name: str, version: str) -> Target:
    release = f"{name} {version}"
    try:
        measured = op_versions.judge_of(release)
    except LookupError as exc:
        raise UsageError(_WHERE, str(exc)) from exc
    shortened = measured.startswith(f"{release}.")
    return Target(measured if shortened else release, name, measured)


def _judgement(target: Target, ops: Mapping[str, int], custom: Sequence[str]) -> Judgement:
    missing = op_versions.missing(ops, custom, target.judge)
    words = f"lacks {', '.join(map(str, missing))}" if missing else "has every op in the version that the file needs"
    return Judgement(target.name, not missing, missing, "; ".join(filter(None, (words, target.note))))
