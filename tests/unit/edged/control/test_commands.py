"""Commands: what is run once, what is not run at all, and what is told of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from edged.control import commands
from edged.control.commands import Drain, FailedError, Jobs, RejectedError, Reload, Remeasure, Reset


class Desk:
    """Jobs whose events are kept."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.jobs = Jobs(lambda verb, event: self.events.append((verb, dict(event))))

    def take(self, verb: str, body: Any, *, retained: bool = False) -> commands.Command | None:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.jobs.take(verb, payload, retained=retained)

    def states(self) -> list[str]:
        return [event["state"] for _, event in self.events]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def nothing(_: object) -> Mapping[str, object]:
    return {}


def test_a_job_from_its_message_to_its_result(desk: Desk) -> None:
    """Three events on the verb's topic, each with id, verb, state and a time; the last one has the result."""
    command = desk.take("reset", {"id": "7", "model": "har", "key": "ann"})
    assert command is not None
    assert command.order == Reset(id="7", model="har", key="ann")
    desk.jobs.run(command, lambda _: {"forgotten": 1})
    assert desk.states() == ["QUEUED", "IN_PROGRESS", "SUCCEEDED"]
    verb, event = desk.events[-1]
    assert (verb, event.pop("ts") > 1_600_000_000) == ("reset", True)
    assert event == {"id": "7", "verb": "reset", "state": "SUCCEEDED", "result": {"forgotten": 1}}


def test_each_verb_has_its_arguments(desk: Desk) -> None:
    """Defaults, and what may be given."""
    given = {"reload": {"id": "a"}, "drain": {"id": "b", "resume": True}, "remeasure": {"id": "c", "model": "m"}}
    found = [desk.take(verb, body) for verb, body in given.items()]
    assert [command and command.order for command in found] == [
        Reload(id="a"), Drain(id="b", resume=True), Remeasure(id="c", model="m"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "state"),
    [(FailedError("no"), "FAILED"), (RejectedError("no"), "REJECTED"), (ZeroDivisionError("no"), "FAILED")],
)
def test_a_job_in_vain(desk: Desk, error: Exception, state: str) -> None:
    """The reason is in the event."""

    def work(_: object) -> Mapping[str, object]:
        raise error

    command = desk.take("reload", {"id": "x"})
    assert command is not None
    desk.jobs.run(command, work)
    assert (desk.states()[-1], desk.events[-1][1]["error"]) == (state, "no")


def test_the_same_id_again_is_answered_and_not_run(desk: Desk) -> None:
    """While it waits, and when it is done: the last event is told again. Another verb has ids of its own."""
    command = desk.take("reload", {"id": "x"})
    assert command is not None
    assert desk.take("reload", {"id": "x"}) is None
    desk.jobs.run(command, nothing)
    assert desk.take("reload", {"id": "x"}) is None
    assert desk.states() == ["QUEUED", "QUEUED", "IN_PROGRESS", "SUCCEEDED", "SUCCEEDED"]
    assert desk.take("drain", {"id": "x"}) is not None
    assert desk.jobs.counts["repeated"] == 2


@pytest.mark.parametrize(
    ("verb", "body", "said"),
    [
        ("relaod", {"id": "1"}, "no verb 'relaod' (did you mean 'reload'?); there are reload, reset, drain, remeasure"),
        ("reload", b"{", "not JSON"),
        ("reload", b"", "not JSON"),
        ("reload", b"[" * 60_000, "not JSON"),
        ("reload", [], "$: expected a mapping, got a list"),
        ("reload", {}, "id: required key is missing"),
        ("reload", {"id": ""}, "id: must not be empty"),
        ("reload", {"id": 5}, "id: expected text, got 5 (put it in quotes)"),
        ("reload", {"id": "x" * 201}, "id: must have at most 200 characters"),
        ("reload", {"id": "1", "force": True}, "force: unknown key"),
        ("reset", {"id": "1"}, "model: required key is missing"),
        ("drain", {"id": "1", "resume": 1}, "resume: expected true or false, got 1"),
        ("reload", b" " * (commands.MAX_BYTES + 1), "65537 bytes, at most 65536"),
    ],
)
def test_what_is_not_a_command_is_rejected(desk: Desk, verb: str, body: Any, said: str) -> None:
    """Told on the verb's topic, with the reason; counted; not remembered."""
    assert desk.take(verb, body) is None
    assert (desk.events[-1][0], desk.states()) == (verb, ["REJECTED"])
    assert said in desk.events[-1][1]["error"]
    assert desk.jobs.counts["rejected"] == 1


def test_a_rejected_command_keeps_its_id_where_one_can_be_read(desk: Desk) -> None:
    """As it was given, character for character: whoever sent it compares. No more of it than an id may have."""
    for ident in ("a\x1b[2J\u200bµ", "\ud800", "x" * 300):
        desk.take("reload", {"id": ident, "x": 1})
    desk.take("reload", b"garbage")
    assert [event["id"] for _, event in desk.events] == ["a\x1b[2J\u200bµ", "\ud800", "x" * 200, None]


def test_what_is_told_of_a_large_command_is_short(desk: Desk) -> None:
    """Thousands of keys, a long one, a long one twice."""
    for body in (
        {"id": "1", **{f"a{number}": 0 for number in range(6000)}}, {"id": "1", "x" * 60_000: 0},
        b'{"' + b"x" * 30_000 + b'": 1, "' + b"x" * 30_000 + b'": 1}',
    ):  # fmt: skip
        desk.take("drain", body)
    assert desk.states() == ["REJECTED"] * 3
    assert all(len(event["error"]) < 1000 for _, event in desk.events)


def test_a_retained_command_is_not_run(desk: Desk) -> None:
    """It would run again at each connection."""
    assert desk.take("reload", {"id": "1"}, retained=True) is None
    assert "retained" in desk.events[-1][1]["error"]


def test_what_waits_and_what_is_known_are_bounded(desk: Desk) -> None:
    """The seventeenth that waits is rejected and may come again; of the outcomes the oldest is forgotten."""
    first = [desk.take("reload", {"id": str(number)}) for number in range(17)]
    assert [command is None for command in first] == [False] * 16 + [True]
    assert "16 commands wait already" in desk.events[-1][1]["error"]
    for command in first[:16]:
        assert command is not None
        desk.jobs.run(command, nothing)
    assert desk.take("reload", {"id": "16"}) is not None
    for number in range(100, 100 + commands.MAX_KNOWN):
        again = desk.take("reload", {"id": str(number)})
        assert again is not None
        desk.jobs.run(again, nothing)
    assert desk.take("reload", {"id": "0"}) is not None
