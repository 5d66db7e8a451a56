"""The engine of a model that keeps state: one interpreter for each key, on the thread that opened it.

Rules it keeps:
- State begins with a new interpreter. None is ever set back: `reset_all_variables` leaves resource variables as they
  are in both runtimes (measured), and so does another allocate_tensors.
- Golden samples, the warm-up and whatever keeps caches warm run on an interpreter of their own, which serves no key.
- There are at most `max_keys`. Who makes room is the owner (see `statekey`) with the most keys, with the one of them
  that was silent longest: whoever invents keys without end pushes out its own.
- An inference that fails leaves a state that nobody knows: the key begins anew.
- Only the opening thread touches an interpreter. `reset` on another thread takes it out of the table; it is closed
  here, later.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from edged import statekey
from edged.clock import now_ns
from edged.engines.base import Array, Engine, EngineInfo
from edged.memory import allocated


class KeyedEngine:
    """An Engine for each key; `turn` says whose it is now, and before the first one it is nobody's.

    make: opens one in its first state. ahead: how many are made before they are needed. nudge: asks for a call of
    `idle`, in which they are made.
    steps: inferences for a key since start. bytes_each: what one more takes of memory, about; None where that is not
    told. made_ns: how long one took to make. evicted, resets, broken: states that were dropped, for another key,
    by `reset`, and for an inference that failed.
    """

    def __init__(self, make: Callable[[], Engine], max_keys: int, ahead: int, nudge: Callable[[], None]) -> None:
        self._make, self._max_keys, self._ahead, self._nudge = make, max_keys, ahead, nudge
        self._states: OrderedDict[str, Engine] = OrderedDict()
        self._spares: list[Engine] = []
        self._dropped: list[Engine] = []
        self._lock = threading.Lock()
        self.steps = self.evicted = self.resets = self.broken = self.made_ns = 0
        self.bytes_each: int | None = None
        self._key: str | None = None
        self._nobodys = self._now = make()
        self.info: EngineInfo = self._now.info
        self.inputs: Sequence[Array] = self._now.inputs
        self.outputs: Sequence[Array] = self._now.outputs

    @property
    def keys(self) -> int:
        """How many keys have a state now. Any thread."""
        return len(self._states)

    @property
    def spare(self) -> int:
        """How many interpreters wait for a new key. Any thread."""
        return len(self._spares)

    def begin(self) -> None:
        """Make ready for the first key: measure what one costs, and make those that are wanted ahead."""
        before, started_ns = allocated(), now_ns()
        fresh = self._make()
        self.made_ns = now_ns() - started_ns
        fresh.invoke()  # some memory is taken by the first inference only
        after = allocated()
        self.bytes_each = None if before is None or after is None else max(0, after - before)
        # The one before has run golden samples through a cold runtime; this one is as warm and no larger.
        self._nobodys.close()
        self._nobodys = self._now = fresh
        self._show(fresh)
        while len(self._spares) < self._ahead:
            self._spares.append(self._make())

    def turn(self, key: str) -> None:
        """Let `inputs`, `invoke` and `outputs` be those of this key. Raises what `make` does."""
        self._close_dropped()
        with self._lock:
            state = self._states.get(key)
            if state is not None:
                self._states.move_to_end(key)
        if state is None:
            state = self._spares.pop() if self._spares else self._make()
            self._take_in(key, state)
            if len(self._spares) < self._ahead:
                self._nudge()
        self._key, self._now = key, state
        self._show(state)

    def invoke(self) -> None:
        """Take the step. Raises RuntimeError as the runtime does; the state is then dropped."""
        if self._key is None:
            self._now.invoke()
            return
        done = False
        try:
            self._now.invoke()
            done = True
        except RuntimeError as exc:
            raise RuntimeError(f"{exc} (the state begins anew)") from exc
        finally:
            if done:
                self.steps += 1
            else:
                self.broken += self._drop([self._key])

    def idle(self) -> None:
        """Make one of those that are wanted ahead; else run the one that serves nobody."""
        self._close_dropped()
        self._key, self._now = None, self._nobodys
        self._show(self._now)
        if len(self._spares) < self._ahead:
            self._spares.append(self._make())
            if len(self._spares) < self._ahead:
                self._nudge()
        else:
            self._now.idle()

    def reset(self, key: str | None) -> int:
        """Drop the state of `key` and of all keys below it, of every key where it is None; returns how many. Any
        thread; it holds from the next `turn` on."""
        with self._lock:
            wanted = [one for one in self._states if statekey.below(one, key)]
        dropped = self._drop(wanted)
        self.resets += dropped
        return dropped

    def close(self) -> None:
        """Drop every interpreter."""
        self.inputs, self.outputs = (), ()
        self._drop(list(self._states))
        self._dropped += [*self._spares, self._nobodys]
        self._spares.clear()
        self._close_dropped()

    def _show(self, engine: Engine) -> None:
        self.inputs, self.outputs = engine.inputs, engine.outputs

    def _take_in(self, key: str, state: Engine) -> None:
        with self._lock:
            while len(self._states) >= self._max_keys:
                self._dropped.append(self._states.pop(self._least()))
                self.evicted += 1
            self._states[key] = state

    def _least(self) -> str:
        """Return whose state makes room; see the module's text."""
        held = Counter(map(statekey.owner, self._states))
        most = max(held.values())
        return next(key for key in self._states if held[statekey.owner(key)] == most)

    def _drop(self, keys: Sequence[str]) -> int:
        with self._lock:
            found = [self._states.pop(key) for key in keys if key in self._states]
            self._dropped += found
        return len(found)

    def _close_dropped(self) -> None:
        while self._dropped:
            self._dropped.pop().close()
