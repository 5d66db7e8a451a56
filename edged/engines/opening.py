"""From a candidate to an engine, as it serves and as it is measured: in this process, or in one of its own."""

from __future__ import annotations

from pathlib import Path

from delegates.base import DEFAULT, Delegate, Opening
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.engines import tflite_runtime
from edged.engines.base import Engine, EngineInfo
from edged.engines.candidate import Candidate
from edged.engines.wire import Wire
from edged.errors import EdgedError

ORDINARY = ThreadPolicy()
# For a process to open a candidate, where nobody says otherwise.
PATIENCE_S = 120.0
# What it raises where a bundle, a runtime, a library or a process refuses.
REFUSALS = (EdgedError, RuntimeError, ValueError, OSError, MemoryError, SystemError)


def open_here(bundle: Bundle, candidate: Candidate, how: Opening = DEFAULT, wire: Wire | None = None) -> Engine:
    """Open it in this process, on this thread.

    wire: the arrays that its `inputs` and `outputs` shall be; own ones without it.
    Raises an EdgedError, RuntimeError, ValueError or OSError when the runtime, the library or the device refuses.
    """
    from edged.engines.tflite import TfliteEngine  # noqa: PLC0415  # with the runtime, for those who open one

    delegate = candidate.create()
    if delegate.api == "compiled_model":
        from edged.engines.tflite_compiled import CompiledEngine  # noqa: PLC0415  # the larger half of one runtime

        return CompiledEngine(bundle, delegate, how, wire=wire)
    runtime = tflite_runtime.by_name(candidate.runtime)
    return TfliteEngine(bundle, runtime, delegate, how, model=model(bundle, delegate), wire=wire)


def open_as_served(
    bundle: Bundle, candidate: Candidate, policy: ThreadPolicy = ORDINARY, *, cache: Path | None = None,
    timeout_s: float = PATIENCE_S,
) -> Engine:  # fmt: skip
    """Open it as the daemon serves it: the CPU in this process, on this thread; code of a vendor in its own process.

    policy: of the thread that a process of its own runs it on. cache: see `delegates.base.Opening`.
    timeout_s: for the process to open it. Raises as `open_here`, and EngineLostError when the process died or was late.
    """
    if not candidate.create().isolated:
        return open_here(bundle, candidate, Opening(threads=candidate.threads))
    from edged.engines.isolated import IsolatedEngine  # noqa: PLC0415  # for those who have an accelerator

    return IsolatedEngine(bundle, candidate, policy, cache=cache, timeout_s=timeout_s)


def takes_none(info: EngineInfo) -> str:
    """Return why a vendor's delegate cannot serve that takes nothing of the model; "" where it does, or may."""
    if info.nodes_delegated != 0:
        return ""
    total = f"{info.nodes_total} " if info.nodes_total else ""
    return f"takes none of the model's {total}ops, so it would be the CPU by another name"


def model(bundle: Bundle, delegate: Delegate) -> bytes:
    """Return the model that this delegate runs: the CPU takes the twin of one compiled for an accelerator."""
    return bundle.model if delegate.isolated else bundle.cpu_model
