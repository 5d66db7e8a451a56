"""The engine in a process of its own: code of a vendor may crash or hang there, and it costs that process alone.

Nothing is copied between the processes: `inputs` and `outputs` are memory that both see (isolated_block), and one
eventfd each way says whose turn it is. One inference costs this side three system calls.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from delegates.base import Opening
from edged.affinity import ThreadPolicy
from edged.bundle import Bundle
from edged.clock import NS_PER_MS, NS_PER_S
from edged.engines.base import Array, EngineInfo, EngineLostError
from edged.engines.candidate import Candidate
from edged.engines.isolated_block import Block, new
from edged.engines.isolated_order import Opened, Order, understood
from edged.engines.isolated_process import INVOKE, Process
from edged.engines.opening import ORDINARY, PATIENCE_S


class IsolatedEngine:
    """A GuardedEngine. One thread at a time may use it; which one does not matter. Two at once mix their answers.

    bundle: its manifest and models go to the process as they lie in memory. policy: of the thread there that opens and
    runs it. cache: see `delegates.base.Opening`. timeout_s: for the process to start and to open. After an
    EngineLostError `inputs` and `outputs` stay as they are until `close`; nothing writes to them any more.
    Raises what `opening.open_here` does, in the same words; EngineLostError when the process died or was late, OSError
    when there is no memory, or no process can be started.
    """

    def __init__(
        self, bundle: Bundle, candidate: Candidate, policy: ThreadPolicy = ORDINARY, *,
        cache: Path | None = None, timeout_s: float = PATIENCE_S,
    ) -> None:  # fmt: skip
        order = Order(bundle, candidate, Opening(cache, threads=candidate.threads), policy)
        block, self._process, opened = _opened(order, timeout_s)
        self._lost: EngineLostError | None = None
        self.pid = self._process.pid
        self.info: EngineInfo = replace(opened.info, scheduling=opened.scheduling)
        self.inputs: Sequence[Array] = block.wire.inputs
        self.outputs: Sequence[Array] = block.wire.outputs
        self.limit_ns = int(timeout_s * NS_PER_S)
        # What an inference uses, made ready.
        self._wake, self._answer = self._process.wake, self._process.answer
        poll = select.poll()
        poll.register(self._answer, select.POLLIN)
        for end in self._process.ends:
            poll.register(end, select.POLLIN)
        self._poll, self._answered = poll.poll, (self._answer, select.POLLIN)
        self._refusal: Callable[[], str | None] = block.refusal

    @property
    def limit_ns(self) -> int:
        """An inference that takes longer is a hang; it is told in whole milliseconds, rounded up."""
        return self._limit_ms * NS_PER_MS

    @limit_ns.setter
    def limit_ns(self, limit_ns: int) -> None:
        self._limit_ms = max(1, -(-limit_ns // NS_PER_MS))

    def invoke(self) -> None:
        """Run the model. Raises RuntimeError with the runtime's words when it refuses; the process lives on.

        Raises EngineLostError when the process has ended, or has been ended because it gave no answer in time.
        """
        if self._lost is not None:
            raise _copy(self._lost)
        os.eventfd_write(self._wake, INVOKE)
        ready = self._poll(self._limit_ms)
        if self._answered not in ready:
            self._lost = self._gone(hang=not ready)
            raise _copy(self._lost)
        os.eventfd_read(self._answer)
        refusal = self._refusal()
        if refusal is not None:
            raise RuntimeError(refusal)

    def idle(self) -> None:
        """Run the model on whatever the inputs hold."""
        self.invoke()

    def ended(self) -> bool:
        """See GuardedEngine."""
        return self._process.ended()

    def close(self) -> None:
        """End the process; takes up to CLOSING_S where its library does not let go."""
        self._lost = self._lost or EngineLostError("is closed")
        self.inputs = self.outputs = ()
        self._process.close()
        self._refusal = _nothing  # the memory goes with the last who holds some of it

    def _gone(self, *, hang: bool) -> EngineLostError:
        """Make sure of its end: nothing writes to the block when this returns."""
        if hang:
            left = self._process.kill()
            return EngineLostError(f"gave no answer within {self._limit_ms} ms (hang){left}", hung=True)
        return self._process.lost()


def _copy(lost: EngineLostError) -> EngineLostError:
    """Return one to raise: what is raised holds on to the frames, and through them to the engine and its memory."""
    return EngineLostError(str(lost), code=lost.code, hung=lost.hung)


def _nothing() -> None:
    """Stand for the block of an engine that is closed."""


def _opened(order: Order, timeout_s: float) -> tuple[Block, Process, Opened]:
    """Start a process and wait until it serves; nothing of it is left when it does not."""
    memory = new(order.bundle.manifest)
    try:
        block, written = Block(memory, order.bundle.manifest), order.written()
        try:
            process = Process(written, memory)
        finally:
            os.close(written)
    finally:
        os.close(memory)
    with contextlib.ExitStack() as undo:
        undo.callback(process.close)
        undo.callback(process.kill)
        opened = understood(process.message(timeout_s))
        undo.pop_all()
    return block, process, opened
