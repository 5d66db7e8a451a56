"""Commands: from a message on cmd/<verb> to a job, and the events that tell of it. Pure: no thread, no socket.

Each job goes QUEUED → IN_PROGRESS → SUCCEEDED or FAILED, or is REJECTED at once. A command that comes again with the
same id, as MQTT may deliver it twice, is answered with what is known of it and not run again.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from edged import schema
from edged.checks import Check, hint, not_empty
from edged.clock import wall_s
from edged.control import messages
from edged.shown import clipped

log = logging.getLogger(__name__)

MAX_BYTES = 1 << 16
# Commands that may wait, and those of which the outcome is known.
MAX_WAITING, MAX_KNOWN = 16, 256
_MAX_TEXT = 200

# Publishes the event of a verb.
Publish = Callable[[str, Mapping[str, object]], None]


class RejectedError(Exception):
    """A command that is not run; the text says why."""


def _short(text: str) -> str | None:
    return None if len(text) <= _MAX_TEXT else f"must have at most {_MAX_TEXT} characters"


_Id = Annotated[str, not_empty, Check(_short)]


@dataclass(frozen=True, kw_only=True)
class Reload:
    """Read the configuration again."""

    id: _Id


@dataclass(frozen=True, kw_only=True)
class Reset:
    """Forget the state of a stateful model; of one key, or of all."""

    id: _Id
    model: str
    key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Drain:
    """Take no new requests; or, with resume, take them again."""

    id: _Id
    resume: bool = False


@dataclass(frozen=True, kw_only=True)
class Remeasure:
    """Measure what may serve a model, or each, and let the best serve."""

    id: _Id
    model: str | None = None


Order = Reload | Reset | Drain | Remeasure
VERBS: Mapping[str, type[Order]] = {"reload": Reload, "reset": Reset, "drain": Drain, "remeasure": Remeasure}


@dataclass(frozen=True)
class Command:
    """An order and the verb that it came with."""

    verb: str
    order: Order


class Jobs:
    """What became of each command. `publish` is called with every event. counts: by outcome, and `repeated`."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._known: OrderedDict[tuple[str, str], dict[str, object]] = OrderedDict()
        self.counts: Counter[str] = Counter()
        self.waiting = 0

    def take(self, verb: str, payload: bytes, *, retained: bool) -> Command | None:
        """Return the command to run; None when there is nothing to run, and an event told why."""
        try:
            order = _order(verb, _plain(payload), retained=retained)
            if self._repeated(verb, order.id):
                return None
            self._require_room()
        except RejectedError as exc:
            self._reject(verb, payload, str(exc))
            return None
        self.waiting += 1
        self._enter(verb, order.id, "QUEUED")
        return Command(verb, order)

    def run(self, command: Command, work: Callable[[Order], Mapping[str, object]]) -> None:
        """Do the work, and tell. work: returns the result; RejectedError or FailedError say why there is none."""
        self.waiting -= 1
        verb, ident = command.verb, command.order.id
        self._enter(verb, ident, "IN_PROGRESS")
        try:
            result = work(command.order)
        except RejectedError as exc:
            self._enter(verb, ident, "REJECTED", error=str(exc))
        except FailedError as exc:
            self._enter(verb, ident, "FAILED", error=str(exc))
        except Exception as exc:  # top of a job: it must end, and the next one find the thread alive
            log.exception("command %s", verb)
            self._enter(verb, ident, "FAILED", error=str(exc) or type(exc).__name__)
        else:
            self._enter(verb, ident, "SUCCEEDED", result=dict(result))

    def _repeated(self, verb: str, ident: str) -> bool:
        known = self._known.get((verb, ident))
        if known is None:
            return False
        self.counts["repeated"] += 1
        self._publish(verb, known)
        return True

    def _require_room(self) -> None:
        if self.waiting >= MAX_WAITING:
            raise RejectedError(f"{self.waiting} commands wait already")

    def _reject(self, verb: str, payload: bytes, why: str) -> None:
        # Not remembered: the same id may come again, rightly.
        self.counts["rejected"] += 1
        self._publish(verb, _event(verb, _ident(payload), "REJECTED", error=why))

    def _enter(self, verb: str, ident: str, state: str, **more: object) -> None:
        self.counts[state.lower()] += 1
        event = self._known[verb, ident] = _event(verb, ident, state, **more)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        self._publish(verb, event)


class FailedError(Exception):
    """A command that was run in vain; the text says why."""


def _event(verb: str, ident: str | None, state: str, **more: object) -> dict[str, object]:
    return {"id": ident, "verb": verb, "state": state, "ts": wall_s(), **more}


def _plain(payload: bytes) -> Any:
    if len(payload) > MAX_BYTES:
        raise RejectedError(f"{len(payload)} bytes, at most {MAX_BYTES}")
    try:
        return json.loads(payload, object_pairs_hook=schema.unique_pairs)
    except (ValueError, RecursionError) as exc:
        raise RejectedError(clipped(f"not JSON: {exc}", _MAX_TEXT)) from exc


def _ident(payload: bytes) -> str | None:
    """Return the id of a command that is not run, if one can be read."""
    try:
        ident = _plain(payload)["id"]
    except (RejectedError, LookupError, TypeError):
        return None
    # As it came: whoever sent it compares it. JSON escapes what would harm a terminal.
    return ident[:_MAX_TEXT] if isinstance(ident, str) else None


def _order(verb: str, given: Any, *, retained: bool) -> Order:
    if retained:
        raise RejectedError("a retained command is not run: it would run again at every connection")
    form = VERBS.get(verb)
    if form is None:
        raise RejectedError(f"no verb {clipped(verb)!r}{hint(verb, VERBS)}; there are {', '.join(VERBS)}")
    if why := messages.keys_problem(given):
        raise RejectedError(why)
    order, problems = schema.build(form, given)
    if order is None:
        raise RejectedError(messages.told(problems))
    return order
