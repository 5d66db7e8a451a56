"""Limits per client at the door: who is refused, with what reply, and when its count goes down."""

from __future__ import annotations

import json

import pytest

from edged import statekey
from edged.errors import Code, RequestError
from edged.intake import Intake
from edged.quota import Quota
from edged.replies import ReplyMemory
from edged.request import OnSent, Reply, Request
from edged.transports.base import Message


class Door:
    """An intake that takes two requests of each user, of 8 bytes at most."""

    def __init__(self) -> None:
        self.submitted: list[Request] = []
        self.published: list[Message] = []
        self.quota, memory = Quota(2, 8), ReplyMemory(1 << 20, 60)
        self.intake = Intake(self.submitted.append, self._publish, memory, lambda _: 700, self.quota)

    def _publish(self, message: Message, _on_sent: OnSent | None = None) -> bool:
        self.published.append(message)
        return True

    def send(self, user: str, correlation: bytes, payload: bytes = b"x", *, old: bool = False) -> None:
        topic = f"edged/v1/dev/box/req/m/c/{user}"
        if old:
            self.intake.on_message(Message(f"{topic}/{correlation.decode()}/raw", payload, received_ns=1))
        else:
            facts = {"response_topic": f"edged/v1/resp/{user}/1", "correlation": correlation}
            self.intake.on_message(Message(topic, payload, received_ns=1, **facts))  # type: ignore[arg-type]

    def answer(self, number: int, reply: Reply | None = None) -> None:
        request = self.submitted[number]
        request.respond(request, reply or Reply(b"y", "application/octet-stream"), None)

    def codes(self) -> list[str]:
        return [json.loads(bytes(message.payload))["error"]["code"] for message in self.published]


@pytest.fixture
def door() -> Door:
    return Door()


def test_one_user_cannot_take_the_place_of_all(door: Door) -> None:
    """The third unanswered request of a user is refused with a reply that may be tried again, and counted."""
    for user, correlation in (("ann", b"1"), ("ann", b"2"), ("ann", b"3"), ("bob", b"1")):
        door.send(user, correlation)
    assert len(door.submitted) == 3
    error = json.loads(bytes(door.published[0].payload))["error"]
    assert (error["code"], error["retryable"]) == ("RESOURCE_EXHAUSTED", True)
    assert door.published[0].topic == "edged/v1/resp/ann/1"
    assert (door.intake.counters["too_many"], door.intake.counters["requests"]) == (1, 4)


@pytest.mark.parametrize(
    "reply", [None, Reply.failure(RequestError(Code.DEADLINE_EXCEEDED, "late"))], ids=["answer", "error"]
)
def test_an_answer_of_any_kind_makes_room(door: Door, reply: Reply | None) -> None:
    """Whoever answers, with whatever: the next request is taken."""
    door.send("ann", b"1")
    door.send("ann", b"2")
    door.answer(0, reply)
    door.send("ann", b"3")
    door.send("ann", b"4")
    assert len(door.submitted) == 3
    assert door.intake.counters["too_many"] == 1


def test_a_login_called_like_a_producer_is_another_user(door: Door) -> None:
    """Its two requests leave the producer's own two; each has its state, and whatever is the producer's is shown."""
    shown: list[Request] = []
    broker, local = door.intake, door.intake.beside(door._publish, shown.append, statekey.of_producer)
    for intake in (broker, local):
        door.intake = intake
        for number in range(3):
            door.send("local-7", str(number).encode())
    assert [request.key for request in door.submitted] == ["c/local-7"] * 2 + ["local/7"] * 2
    assert shown == door.submitted[2:]
    assert door.codes() == ["RESOURCE_EXHAUSTED"] * 2
    for number in range(4):
        door.answer(number)
    assert door.quota._unanswered == {}


def test_a_refused_request_may_be_sent_again(door: Door) -> None:
    """The refusal is not remembered as its answer."""
    door.send("ann", b"1")
    door.send("ann", b"2")
    door.send("ann", b"3")
    door.answer(0)
    door.send("ann", b"3")
    assert len(door.submitted) == 3


def test_a_repeat_is_answered_and_not_counted(door: Door) -> None:
    """At the limit a repeat of what was answered still gets its answer."""
    door.send("ann", b"1")
    door.answer(0)
    door.send("ann", b"2")
    door.send("ann", b"3")
    door.send("ann", b"1")
    assert bytes(door.published[-1].payload) == b"y"
    assert door.intake.counters["too_many"] == 0


@pytest.mark.parametrize("old", [False, True], ids=["MQTT 5", "3.1.1"])
def test_a_payload_too_large_is_refused(door: Door, *, old: bool) -> None:
    """With a reply in either form, counted, before anything is done with it; and it takes no room."""
    for number in range(5):
        door.send("ann", b"%d" % number, bytes(9), old=old)
    assert door.codes() == ["INVALID_ARGUMENT"] * 5
    assert door.intake.counters["too_large"] == 5
    door.send("ann", b"7", bytes(8), old=old)
    assert len(door.submitted) == 1


def test_both_forms_count_for_the_same_user(door: Door) -> None:
    """MQTT 5 and 3.1.1 are two ways to ask, not two users."""
    door.send("ann", b"1")
    door.send("ann", b"2", old=True)
    door.send("ann", b"3", old=True)
    assert door.codes() == ["RESOURCE_EXHAUSTED"]
