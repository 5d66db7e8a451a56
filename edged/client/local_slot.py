"""A slot of shared memory in the hands of a producer: written to, then sent or given back."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType

import numpy as np
import numpy.typing as npt

from edged import codecs
from edged.client import asked
from edged.client.local_link import Link
from edged.client.local_session import Session, Waiting
from edged.client.payloads import Array
from edged.client.result import Result
from edged.clock import NS_PER_MS, now_ns
from edged.errors import Code, RequestError, UsageError
from edged.transports.shm_wire import Announcement


class Slot:
    """Where a payload is written without a copy. Made by `LocalProducer.slot`; for one thread.

    Once it is sent its memory is the daemon's until the answer: what an array of before still shows there must be
    neither written nor relied on.
    """

    def __init__(self, link: Link, session: Session, number: int, model: str | None) -> None:
        self._link, self._session, self._number, self._model = link, session, number, model
        self._held = True

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    @property
    def nbytes(self) -> int:
        """How many bytes it holds."""
        return self._session.slot_bytes

    @property
    def array(self) -> Array:
        """All of it, as bytes; it starts at a page. What was there before is still there."""
        return self.view((self.nbytes,), np.uint8)

    def view(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Return its beginning as an array.

        Raises RequestError(INVALID_ARGUMENT) when it is too small for that, and for what no array in it can be.
        """
        wanted, sizes = np.dtype(dtype), tuple(map(operator.index, shape))
        if wanted.hasobject or not wanted.itemsize or any(size < 0 for size in sizes):
            raise RequestError(Code.INVALID_ARGUMENT, f"no array of {wanted} and shape {sizes} can be in a slot")
        room = self.room(math.prod(sizes) * wanted.itemsize)
        try:
            return np.ndarray(sizes, wanted, room)
        except ValueError as error:  # too many dimensions, or one that is too large beside one of 0
            raise RequestError(Code.INVALID_ARGUMENT, f"shape {sizes}: {error}") from error

    def room(self, size: int) -> memoryview:
        """Return its first `size` bytes. Raises as `view`, and UsageError when it was sent or given back."""
        self._refuse_gone()
        if not 0 <= size <= self.nbytes:
            what = f"a payload of {size} bytes, a slot has {self.nbytes} (the daemon's local.slot_bytes)"
            raise RequestError(Code.INVALID_ARGUMENT, what)
        return self._session.memory.view(self._number, size)

    def send(
        self, size: int | None = None, *, model: str | None = None, codec: str = "raw", deadline_ms: int = 1000
    ) -> Future[Result]:
        """Ask with its first `size` bytes (all when not given) as the payload, in this codec.

        Raises RequestError: INVALID_ARGUMENT for more bytes than it has, UNAVAILABLE when there is no connection any
        more, or the daemon does not read; UsageError. The future ends as that of `LocalProducer.submit`.
        """
        return self._sent(size, model, codec, deadline_ms)[1].future

    def infer(
        self, size: int | None = None, *, model: str | None = None, codec: str = "raw", deadline_ms: int = 1000
    ) -> Result:
        """`send`, and wait for the answer. Not in the callback of a future (UsageError)."""
        if self._link.here():
            raise UsageError("infer", "it cannot be waited for in the callback of a future", "use send there")
        return self._link.wait(*self._sent(size, model, codec, deadline_ms))

    def announce(
        self, size: int | None, model: str | None, codec: str, deadline_ms: int, began_ns: int
    ) -> tuple[Session, Waiting] | None:
        """`send`, of a request that began then, for who waits through the link; None when the connection has ended."""
        size = self.nbytes if size is None else size
        self.room(size)
        ends_ns = began_ns + deadline_ms * NS_PER_MS
        told = self._announcement(size, model, codec, max(1, (ends_ns - now_ns()) // NS_PER_MS))
        waiting = Waiting(told.sequence, codec, deadline_ms, began_ns, ends_ns)
        link = self._link
        with link.changed:
            if not self._announced(told, waiting):
                return None
            self._held = False
            link.counters["sent"] += 1
            link.heed(waiting.deadline_ns)
        return self._session, waiting

    def _sent(self, size: int | None, model: str | None, codec: str, deadline_ms: int) -> tuple[Session, Waiting]:
        found = self.announce(size, model, codec, asked.deadline(deadline_ms), now_ns())
        if found is None:  # what was written is gone with it
            what = f"the daemon takes no request: {self._link.trouble or 'it came back, with new slots'}"
            raise RequestError(Code.UNAVAILABLE, what, 0)
        return found

    def _announced(self, told: Announcement, waiting: Waiting) -> bool:
        """Hand it to the daemon; False when the connection has ended. With the lock held."""
        if self._session.lost:
            return False
        try:
            heard = self._session.announce(told, waiting)
        except ConnectionError:
            self._link.end(self._session)
            return False
        if not heard:
            raise RequestError(Code.UNAVAILABLE, "the daemon takes no request: it does not read", 0)
        return True

    def give_back(self) -> None:
        """Let others have it; nothing when it was sent or given back already."""
        if not self._held:
            return
        self._held = False
        with self._link.changed:
            self._session.free.append(self._number)
            self._link.changed.notify_all()

    def _announcement(self, size: int, model: str | None, codec: str, deadline_ms: int) -> Announcement:
        if codec not in codecs.NAMES:
            raise UsageError("codec", f"unknown codec {codec!r}", f"one of {', '.join(codecs.NAMES)}")
        name = self._model if model is None else asked.level("model", model)
        if name is None:
            raise UsageError("model", "none is named", "here, or LocalProducer(…, model=…) for all requests")
        content_type = "" if codec == codecs.DEFAULT else codecs.TABLE[codec].content_type
        return Announcement(self._number, next(self._session.sequence), size, deadline_ms, name, content_type)

    def _refuse_gone(self) -> None:
        if not self._held:
            raise UsageError("slot", "it was sent or given back", "take another one")
