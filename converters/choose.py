"""Which modes `--quantize auto` tries, which of them ships, and what is advised where none may.

The choice depends on nothing that differs from run to run: sizes and gates, never a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from converters.options import MODES, Options
from converters.report import Attempt

# Converted where a mode crashed, to name modes that work: the quick ones, without data.
FALLBACKS = tuple(name for name, mode in MODES.items() if not mode.calibrated)
SEARCHED = tuple(name for name, mode in MODES.items() if mode.searched)


def modes(options: Options) -> tuple[str, ...]:
    """Return the modes to convert in the first start of TensorFlow; `mixed` follows where it is of use."""
    if options.quantize in MODES:
        return (options.quantize,)
    return tuple(
        name
        for name, mode in MODES.items()
        if not mode.searched
        and (options.calibration or not mode.calibrated)
        and (mode.integer or options.io == "float")
    )


def wants_mixed(options: Options, attempts: Sequence[Attempt]) -> bool:
    """Whether `auto` should search for layers to keep float: int8 was tried and refused, and the float model is sound.

    What kills the converter in int8 would kill it again.
    """
    states = {attempt.quantize: attempt.state for attempt in attempts}
    return options.io == "float" and states.get("int8") == "refused" and states.get("none") == "passed"


def choose(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that ships: of those that pass on most runtimes the smallest, of one size the best rank.

    A larger file of whole numbers is not preferred: where a delegate needs one, --target names it, and files that it
    takes nothing of do not pass.
    """
    passed = [attempt for attempt in attempts if attempt.state == "passed"]
    # A mode without effect makes the float file again, under a name that promises something else.
    passed = [attempt for attempt in passed if attempt.facts is None or attempt.facts.effect] or passed
    if not passed:
        return None
    most = max(map(_runtimes, passed))
    widest = [attempt for attempt in passed if _runtimes(attempt) == most]
    return min(widest, key=lambda attempt: (attempt.model_bytes, MODES[attempt.quantize].rank))


def _runtimes(attempt: Attempt) -> int:
    return len({run.runtime for run in attempt.targets if run.state == "passed" and run.delegate != "reference"})


def advice(options: Options, attempts: Sequence[Attempt]) -> tuple[str, ...]:
    """Return what to do about a refusal, the best thing first."""
    asked = attempts[0]
    others = [attempt for attempt in attempts[1:] if attempt.state == "passed"]
    lines = [f"--quantize {other.quantize} keeps every limit ({other.model_bytes:,} bytes)" for other in others]
    if asked.facts is not None and asked.facts.random_ops:
        lines.append(f"the model draws random numbers ({', '.join(asked.facts.random_ops)}): no two runs agree")
    if options.quantize not in MODES:
        return (
            *lines,
            "see the report for the mode that comes nearest, and what it misses",
        )
    if asked.state == "died" and not others:
        lines.append(f"the modes {', '.join(attempt.quantize for attempt in attempts[1:])} failed as well")
    if asked.state == "refused" and asked.facts is not None and asked.facts.stateful:
        lines.append(
            "the file keeps state from one sample to the next: if the SavedModel does not, unroll its recurrent layers"
        )
    if asked.state == "refused" and asked.targets:
        if options.calibration and options.mode.calibrated:
            lines.append("is --calibration what the model will see, scaled as for training?")
        if options.quantize != "none":
            lines.append("--quantize auto tries every mode and measures each")
    return tuple(lines)
