"""Whether the target is there and takes the requests, before anything is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from edged.bench.target import Question, Target
from edged.clock import NS_PER_MS, NS_PER_S, now_ns
from edged.errors import BadDataError, Code, EdgedError, UnavailableError

# These say that the model is there and busy, or not there yet.
_LATER = (Code.UNAVAILABLE.value, Code.DEADLINE_EXCEEDED.value)
_BUSY = Code.RESOURCE_EXHAUSTED.value
_REFUSED = (Code.INVALID_ARGUMENT.value, Code.UNIMPLEMENTED.value, Code.FAILED_PRECONDITION.value)
# The state of a model, as its device's status tells it.
_FAILED = "failed"
_PAUSE_S = 0.1
_SLICE_S = 0.05


def ready(target: Target, question: Question, numbers: Iterator[int], timeout_s: float, stop: threading.Event) -> None:
    """Ask once, and again while the model starts; returns when there is an answer, or `stop` is set.

    Raises UnavailableError when none comes within `timeout_s`, or the model is not there, BadDataError when the
    request is refused for what it holds.
    """
    until, said = now_ns() + int(timeout_s * NS_PER_S), ""
    while not stop.is_set():
        answer = _ask(target, question, next(numbers), stop)
        if answer in ("", _BUSY) or stop.is_set():
            return
        if answer not in (None, *_LATER):
            raise _refused(target, question, answer)
        said = answer or said
        failed = _failed(target, question)
        if failed or now_ns() > until:
            raise failed or _away(target, question, said, timeout_s)
        time.sleep(_PAUSE_S)


def _ask(target: Target, question: Question, number: int, stop: threading.Event) -> str | None:
    """Return the code of the answer, "" for one without an error, None for none by the deadline."""
    came, codes = threading.Event(), list[str]()

    def on_answer(answered: int, _here_ns: int, code: str) -> None:
        if answered == number:
            codes.append(code)
            came.set()

    target.listen(on_answer)
    if not target.send(number, question):
        return None
    until = now_ns() + question.deadline_ms * NS_PER_MS
    while not came.wait(_SLICE_S) and not stop.is_set() and now_ns() < until:
        pass
    return codes[0] if codes else None


def _refused(target: Target, question: Question, code: str) -> EdgedError:
    what = f"answers {code} to {len(question.encoded.payload)} bytes of {question.encoded.codec} for {question.model}"
    if code in _REFUSED:
        return BadDataError(target.where, what, "the model takes something else: see `edged inspect` of its bundle")
    return UnavailableError(target.where, what)


def _failed(target: Target, question: Question) -> UnavailableError | None:
    """Return the error of a model that will not come up however long one waits."""
    told = target.model(question.model)
    if told.get("state") != _FAILED:
        return None
    return UnavailableError(target.where, f"its model {question.model} failed: {told.get('reason')}")


def _away(target: Target, question: Question, said: str, timeout_s: float) -> UnavailableError:
    what = f"{said or 'no answer'} from {question.model} at QoS {question.qos} within {timeout_s:g} s"
    facts = target.facts()
    state, reason, ended = (str(facts.get(key, "")) for key in ("state", "reason", "last_disconnect"))
    told = f"its state is {state!r}" + (f": {reason}" if reason else "") if state else "it has told no state"
    # A broker that takes no such request says so by ending the connection.
    cut = f"; the connection ended {facts['disconnects']} times, last: {ended}" if ended else ""
    hint = "a broker may take no QoS 2: try --qos 1" if ended and question.qos > 1 else ""
    return UnavailableError(target.where, f"{what} ({told}{cut})", hint)
