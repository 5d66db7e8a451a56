"""Serving several requests with one inference, for a model with a batch dimension. Each request is one row.

Rules it keeps:
- A payload is decoded into its row of the input as soon as its request is taken, so nothing is copied, and decoding
  overlaps the waiting for others.
- Who waits has a deadline: nothing is waited for that would leave it less than twice what the last inference took, and
  a millisecond.
- What is wrong with one request costs that one. A payload that cannot be decoded leaves its row to the next request;
  when the inference itself fails, each row is run again by itself, a single one too: a row of old may be to blame.
- Rows that no request fills hold what they held before, or zeros. No row may depend on any other, nor on its place:
  that is tried with every row when the model is opened, and a model that fails it is not served. The bundle's
  tolerance does not count for others: in the same place the same arithmetic gives the same answer.
- Each stage of a request is its own work; waiting for others, before the inference and after it, is in `queue`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np

from edged.answering import Form
from edged.bundle import Bundle
from edged.clock import NS_PER_MS, now_ns
from edged.engines.base import Array, Engine
from edged.engines.golden import largest_error
from edged.engines.randominputs import RandomInputs
from edged.errors import EdgedError, RequestError
from edged.request import Request
from edged.worker import Worker

# Shares of the largest number in an output. What a row may change by when others do: nothing, but for accelerators that
# add up in an order of their own. When it is in another place: there a kernel may work by other blocks.
_NOISE, _PLACE = 1e-4, 1e-2


class _Row:
    """A request in its row: what its decoder said, and how long that took."""

    __slots__ = ("decode_ns", "form", "request")

    def __init__(self, request: Request, form: Form, decode_ns: int) -> None:
        self.request, self.form, self.decode_ns = request, form, decode_ns


class _Views:
    """The rows of an engine's arrays; taken again when it shows others."""

    def __init__(self) -> None:
        self._of: Sequence[Array] | None = None
        self._rows: list[list[Array]] = []

    def of(self, arrays: Sequence[Array], size: int) -> Sequence[Sequence[Array]]:
        """Return the first `size` rows, each a view of every array with a leading dimension of 1."""
        if arrays is not self._of:
            self._of, self._rows = arrays, [[array[row : row + 1] for array in arrays] for row in range(size)]
        return self._rows


class Batched:
    """A Server. opened: the bundle as the engine has it open, with a leading dimension of at least `size`."""

    def __init__(self, worker: Worker, engine: Engine, opened: Bundle, size: int, timeout_ns: int) -> None:
        self._worker, self._engine, self._size, self._timeout_ns = worker, engine, size, timeout_ns
        self._inputs, self._outputs = _Views(), _Views()
        self._inferences = self._filled = self._took_ns = 0
        with contextlib.suppress(RequestError):  # nothing serves yet: its info says why
            self._require_independence(opened)

    def serve(self, first: Request) -> None:
        """Run the request, with others that wait or come in time."""
        rows: list[_Row] = []
        self._worker.current = taken = [first]
        until_ns = now_ns() + self._timeout_ns
        request: Request | None = first
        while request is not None:
            if self._decoded(request, rows):
                until_ns = min(until_ns, request.deadline_ns - 2 * self._took_ns - NS_PER_MS)
            request = self._worker.admission.more(until_ns) if len(rows) < self._size else None
            if request is not None:
                taken.append(request)
        self._run(rows)
        self._worker.busy_since_ns, self._worker.current = 0, ()

    def reset(self, key: str | None) -> int:  # noqa: ARG002  # the protocol's
        """There is no state."""
        return 0

    def facts(self) -> Mapping[str, object]:
        """Return {"batched": …}: rows of one inference at most, inferences since start, and requests in them."""
        return {"batched": {"max": self._size, "inferences": self._inferences, "requests": self._filled}}

    def _decoded(self, request: Request, rows: list[_Row]) -> bool:
        """Decode into the next free row; returns whether it could be, else it is answered."""
        into = self._inputs.of(self._engine.inputs, self._size)[len(rows)]
        request.started_ns = self._worker.busy_since_ns = now_ns()
        try:
            form = self._worker.answering.decode(request, into)
        except Exception as exc:  # noqa: BLE001  # top of a request, as in the worker; it is logged
            for array in into:  # half written, perhaps with what no inference must see
                array.fill(0)
            self._deliver(request, exc)
            self._worker.busy_since_ns = 0  # as below
            return False
        rows.append(_Row(request, form, now_ns() - request.started_ns))
        self._worker.busy_since_ns = 0  # waiting for others is no hang
        return True

    def _run(self, rows: Sequence[_Row], *, alone: bool = False) -> None:
        """Run what is in the rows, and answer them; those that somebody answered meanwhile are left out.

        alone: every row holds the one request, so that a failure is its own.
        """
        if all(row.request.claimed for row in rows):
            return
        self._worker.busy_since_ns = begun_ns = now_ns()
        try:
            self._worker.call(self._engine.invoke, self._engine)
        except RequestError as error:  # nothing serves now, whatever is asked
            for row in rows:
                self._deliver(row.request, error)
        except Exception as exc:  # noqa: BLE001  # top of a request, as in the worker; it is logged
            if alone:
                self._deliver(rows[0].request, exc)
                self._clear()
            else:
                self._apart(rows)
        else:
            self._worker.last_done_ns = now_ns()
            self._took_ns = self._worker.last_done_ns - begun_ns
            self._inferences += 1
            self._filled += len(rows)
            for row, outputs in zip(rows, self._outputs.of(self._engine.outputs, self._size), strict=False):
                self._answer(row, outputs)

    def _answer(self, row: _Row, outputs: Sequence[Array]) -> None:
        request = row.request
        if request.claimed:
            return
        request.inferred_ns = now_ns()
        request.decoded_ns = request.inferred_ns - self._took_ns
        request.started_ns = request.decoded_ns - row.decode_ns
        try:
            reply = self._worker.answering.encode(request, row.form, outputs)
        except Exception as exc:  # noqa: BLE001  # top of a request, as in the worker; it is logged
            self._deliver(request, exc)
        else:
            self._worker.answering.deliver(request, reply)

    def _apart(self, rows: Sequence[_Row]) -> None:
        """Run each of the rows with which an inference failed by itself: another one, or a row of old, is to blame."""
        for row in rows:
            alone: list[_Row] = []
            if self._decoded(row.request, alone):
                for array in self._engine.inputs:
                    array[1:] = array[:1]
                self._run(alone, alone=True)

    def _clear(self) -> None:
        for array in self._engine.inputs:
            array.fill(0)

    def _deliver(self, request: Request, error: Exception) -> None:
        if not request.claimed:
            self._worker.answering.deliver(request, self._worker.answering.failure(error))

    def _require_independence(self, opened: Bundle) -> None:
        """Raise EdgedError when the answer of any row changes with another row, or with the place it is in."""
        golden = self._worker.plan.bundle.golden()
        drawn = RandomInputs(opened, golden)
        inputs, others = drawn.draw(0), drawn.draw(1)
        before = self._outputs_of(inputs)
        for kept in self._kept():
            for spec, one, two in zip(
                opened.manifest.outputs, before, self._kept_among(kept, inputs, others), strict=True
            ):
                if not _alike(one[kept], two[kept], _NOISE):
                    self._refuse(f"output {spec.name!r} of one request depends on the others of its batch")
        for spec, rows in zip(opened.manifest.outputs, self._outputs_of([array[:1] for array in inputs]), strict=True):
            tolerance = 0.0 if golden is None else golden.tolerance[spec.name]
            if not all(_alike(row, rows[0], _PLACE, tolerance) for row in rows[1 : self._size]):
                self._refuse(f"output {spec.name!r} of one request depends on its place in the batch")

    def _kept(self) -> Iterator[list[int]]:
        """Yield the rows that stay while all others change: of any two, each stays once while the other changes."""
        for bit in range(max(1, (self._size - 1).bit_length())):
            for side in (0, 1):
                if kept := [row for row in range(self._size) if row >> bit & 1 == side]:
                    yield kept

    def _kept_among(self, kept: list[int], inputs: Sequence[Array], others: Sequence[Array]) -> list[Array]:
        mixed = [array.copy() for array in others]
        for array, values in zip(mixed, inputs, strict=True):
            array[kept] = values[kept]
        return self._outputs_of(mixed)

    def _outputs_of(self, inputs: Sequence[Array]) -> list[Array]:
        for array, values in zip(self._engine.inputs, inputs, strict=True):
            np.copyto(array, values)
        begun_ns = now_ns()
        self._worker.call(self._engine.invoke, self._engine)
        self._took_ns = now_ns() - begun_ns
        return [output.copy() for output in self._engine.outputs]

    def _refuse(self, what: str) -> NoReturn:
        raise EdgedError(self._worker.plan.name, what, "set batch.max_batch_size to 1")


def _alike(one: Array, two: Array, share: float, tolerance: float = 0.0) -> bool:
    """Whether two arrays differ by no more than the tolerance, or that share of the largest finite number in them."""
    if np.array_equal(one, two, equal_nan=True):
        return True
    numbers = np.abs(np.stack((one, two)).astype(np.float64))
    largest = float(numbers.max(initial=0.0, where=np.isfinite(numbers)))
    return largest_error(one, two) <= max(tolerance, share * largest)  # so that NaN fails
