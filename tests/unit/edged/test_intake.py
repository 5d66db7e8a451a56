"""The MQTT contract at the door: who is answered, where, with what, and who is refused and counted."""

from __future__ import annotations

import json

import pytest

from edged.errors import Code, RequestError
from edged.intake import Intake
from edged.replies import ReplyMemory
from edged.request import OnSent, Reply, Request
from edged.transports.base import Message

TOPIC = "edged/v1/dev/box/req/m/c/ann"
NOW = 5_000_000_000


class Door:
    """An intake with lists where the rooms behind and before it would be."""

    def __init__(self) -> None:
        self.submitted: list[Request] = []
        self.published: list[Message] = []
        self.takes = self.connected = True
        self.intake = Intake(self.submitted.append, self.publish, ReplyMemory(1 << 20, 60), lambda _: 700)

    def publish(self, message: Message, on_sent: OnSent | None = None) -> bool:
        if not self.connected or (not self.takes and message.content_type != "application/json"):
            return False
        self.published.append(message)
        return True

    def send(self, topic: str = TOPIC, payload: bytes = b"x", **properties: object) -> None:
        properties = {"response_topic": "edged/v1/resp/ann/1", "correlation": b"c", **properties}
        self.intake.on_message(Message(topic, payload, received_ns=NOW, **properties))  # type: ignore[arg-type]

    def answer(self, number: int = 0, reply: Reply | None = None) -> None:
        self.submitted[number].respond(
            self.submitted[number], reply or Reply(b"y", "application/octet-stream", "v=1"), None
        )

    def error(self, number: int = -1) -> str:
        return str(json.loads(bytes(self.published[number].payload))["error"]["code"])


@pytest.fixture
def door() -> Door:
    return Door()


def test_a_request_becomes_what_was_sent(door: Door) -> None:
    """Model, codec, payload, mark and deadline (the model's default)."""
    door.send(payload=b"abc", content_type="application/x-npy")
    request = door.submitted[0]
    assert (request.model, request.codec, request.payload) == ("m", "npy", b"abc")
    assert request.received_ns == NOW
    assert request.deadline_ns == NOW + 700_000_000


def test_the_reply_goes_to_the_response_topic_with_the_correlation(door: Door) -> None:
    """QoS of the request, status ok, and one meta property."""
    door.send(qos=1)
    door.answer()
    message = door.published[0]
    assert (message.topic, message.correlation, message.qos) == ("edged/v1/resp/ann/1", b"c", 1)
    assert message.user == (("status", "ok"), ("meta", "v=1"))


def test_the_older_form_carries_everything_in_the_topic(door: Door) -> None:
    """MQTT 3.1.1: correlation, codec and deadline by level; the reply topic follows from them."""
    door.send(f"{TOPIC}/c77/json/250", response_topic=None, correlation=None)
    request = door.submitted[0]
    assert (request.codec, request.deadline_ns) == ("json", NOW + 250_000_000)
    door.answer()
    assert door.published[0] == Message("edged/v1/resp/ann/c77", b"y")  # and no property, which 3.1.1 has not


@pytest.mark.parametrize(
    ("properties", "deadline_ms"),
    [
        ({"user": (("deadline-ms", "42"),)}, 42),
        ({"user": (("deadline-ms", "42"),), "expiry_s": 9}, 42),
        ({"expiry_s": 9}, 9000),
        ({"expiry_s": 0}, 1),
        ({"expiry_s": 4_294_967_295}, 86_400_000),
        ({}, 700),
    ],
)
def test_the_deadline_is_the_property_then_the_expiry_then_the_default(
    door: Door, properties: dict[str, object], deadline_ms: int
) -> None:
    """The order of the contract, and the bounds of both."""
    door.send(**properties)
    assert door.submitted[0].deadline_ns == NOW + deadline_ms * 1_000_000


BAD_DEADLINES = ["0", "-5", "1e3", "1.5", "86400001", "9" * 5000, "١٢", "soon"]


@pytest.mark.parametrize("text", ["", *BAD_DEADLINES])
def test_a_bad_deadline_is_an_error_reply(door: Door, text: str) -> None:
    """INVALID_ARGUMENT, and nothing is run; the same request with a good one is not taken for a repeat."""
    door.send(user=(("deadline-ms", text),))
    assert door.error() == "INVALID_ARGUMENT"
    assert not door.submitted
    door.send(user=(("deadline-ms", "100"),))
    assert len(door.submitted) == 1


@pytest.mark.parametrize("text", BAD_DEADLINES)
def test_a_bad_deadline_level_is_an_error_reply(door: Door, text: str) -> None:
    """The older form: user and correlation are known, so the requester is told."""
    door.send(f"{TOPIC}/c77/raw/{text}", response_topic=None, correlation=None)
    assert door.error() == "INVALID_ARGUMENT"
    assert door.published[0].topic == "edged/v1/resp/ann/c77"
    assert not door.submitted


def test_a_requester_may_repeat_itself_the_moment_it_is_told_to(door: Door) -> None:
    """The reply says retryable; the resend comes from inside the publish of that reply, and is run."""
    door.send()
    publish = door.publish

    def answered(message: Message, on_sent: OnSent | None = None) -> bool:
        door.intake._publish = publish
        door.send()
        return publish(message, on_sent)

    door.intake._publish = answered
    door.answer(0, Reply.failure(RequestError(Code.RESOURCE_EXHAUSTED, "full")))
    assert len(door.submitted) == 2


def test_an_unknown_content_type_is_an_error_reply(door: Door) -> None:
    """UNIMPLEMENTED, to the right place."""
    door.send(content_type="text/html")
    assert door.error() == "UNIMPLEMENTED"
    assert door.published[0].correlation == b"c"


def test_an_unknown_codec_level_is_an_error_reply(door: Door) -> None:
    """The same for the older form."""
    door.send(f"{TOPIC}/c/xml", response_topic=None, correlation=None)
    assert door.error() == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    "response_topic",
    [
        "edged/v1/resp/bob/1",  # somebody else's
        "edged/v1/resp/ann",  # no level of their own
        "edged/v1/resp/ann/",
        "edged/v1/resp/ann/+",
        "edged/v1/resp/ann/#",
        "edged/v1/resp/ann/\0",
        "edged/v1/resp/annette/1",
        "edged/v1/dev/box/status",  # the daemon may, the requester may not
        "$SYS/broker",
        "+",
        "",
    ],
)
def test_a_foreign_response_topic_is_refused_and_counted(door: Door, response_topic: str) -> None:
    """The daemon publishes nothing on behalf of a requester where that one may not be."""
    door.send(response_topic=response_topic)
    assert not door.submitted
    assert not door.published
    assert door.intake.counters["refused_response_topic"] == 1


def test_nobody_to_answer_is_refused_and_counted(door: Door) -> None:
    """No Response Topic, a retained request, a topic that is no request: none is run, each has its counter."""
    door.send(response_topic=None)
    door.send(retain=True)
    door.send("edged/v1/dev/box/req/m")
    assert not door.submitted
    assert not door.published
    assert door.intake.counters == {
        "requests": 3, "refused_no_response_topic": 1, "refused_retained": 1, "refused_topic": 1,
    }  # fmt: skip


def test_a_repeat_is_not_run_and_gets_the_first_answer(door: Door) -> None:
    """Before the answer it is ignored, after it the same message is sent again."""
    door.send()
    door.send()
    assert len(door.submitted) == 1
    door.answer()
    door.send()
    assert len(door.submitted) == 1
    assert door.published[0] is door.published[1]
    assert door.intake.counters["repeats"] == 2


def test_a_repeat_after_a_retryable_error_runs_again(door: Door) -> None:
    """Queue full is no answer to remember; a bad payload is."""
    door.send()
    door.answer(0, Reply.failure(RequestError(Code.RESOURCE_EXHAUSTED, "full")))
    door.send()
    assert len(door.submitted) == 2
    door.answer(1, Reply.failure(RequestError(Code.INVALID_ARGUMENT, "bad")))
    door.send()
    assert len(door.submitted) == 2
    assert door.error() == "INVALID_ARGUMENT"


def test_a_repeat_of_what_must_not_run_again_gets_the_same_error(door: Door) -> None:
    """The step of a state was taken, and its answer came too late: the repeat hears that again and takes no step."""
    door.send()
    door.submitted[0].once = True
    door.answer(0, Reply.failure(RequestError(Code.DEADLINE_EXCEEDED, "late")))
    door.send()
    assert len(door.submitted) == 1
    assert [door.error(0), door.error(1)] == ["DEADLINE_EXCEEDED"] * 2


def test_what_must_not_run_again_does_not_for_a_reply_that_cannot_be_sent(door: Door) -> None:
    """An error in its place, and for each repeat."""
    door.takes = False
    door.send()
    door.submitted[0].once = True
    door.answer()
    door.send()
    assert len(door.submitted) == 1
    assert [door.error(0), door.error(1)] == ["RESOURCE_EXHAUSTED"] * 2


def test_the_key_of_a_request_is_its_users(door: Door) -> None:
    """The user's own, or one below it by property; the older form has no properties."""
    door.send(correlation=b"1")
    door.send(correlation=b"2", user=(("state-key", "line/3"),))
    door.send(f"{TOPIC}/c77/raw", response_topic=None, correlation=None)
    assert [request.key for request in door.submitted] == ["c/ann", "c/ann/line/3", "c/ann"]


def test_the_same_request_for_another_key_is_no_repeat(door: Door) -> None:
    """Equal steps of two states, with correlations of their own: both run, each once."""
    for _ in range(2):
        for own in ("a", "b"):
            door.send(user=(("state-key", own),))
    assert [request.key for request in door.submitted] == ["c/ann/a", "c/ann/b"]
    assert door.intake.counters["repeats"] == 2


@pytest.mark.parametrize("own", ["", "x" * 256])
def test_a_key_that_is_none_is_an_error_reply(door: Door, own: str) -> None:
    """Nothing is run on another state instead."""
    door.send(user=(("state-key", own),))
    assert (door.submitted, door.error()) == ([], "INVALID_ARGUMENT")


def test_without_correlation_every_message_is_a_new_request(door: Door) -> None:
    """Nothing tells a repeat apart, so nothing is taken for one."""
    door.send(correlation=None)
    door.send(correlation=None)
    assert len(door.submitted) == 2


def test_a_reply_that_cannot_be_sent_becomes_an_error_reply(door: Door) -> None:
    """Larger than the broker takes: the requester is told instead of left waiting."""
    door.takes = False
    door.send()
    door.answer()
    assert door.error() == "RESOURCE_EXHAUSTED"
    assert door.intake.counters["unsent"] == 1


def test_a_reply_that_was_accepted_and_then_refused_becomes_an_error_reply(door: Door) -> None:
    """The broker says later that it does not take it: the requester hears of it, once, and a repeat runs again."""
    door.send()
    door.answer()
    (reply,) = door.published
    assert reply.on_refused is not None
    reply.on_refused()
    assert [door.error(), len(door.published)] == ["RESOURCE_EXHAUSTED", 2]
    assert door.published[1].on_refused is None
    assert door.published[1].correlation == b"c"
    door.send()
    assert len(door.submitted) == 2


def test_a_remembered_reply_that_cannot_be_sent_becomes_an_error_reply(door: Door) -> None:
    """The limit was learnt since: a repeat is not met with silence."""
    door.send()
    door.answer()
    door.takes = False
    door.send()
    assert (door.error(), len(door.submitted)) == ("RESOURCE_EXHAUSTED", 1)


def test_a_reply_that_finds_no_connection_is_kept_for_the_repeat(door: Door) -> None:
    """At QoS 0: the requester asks again, and gets the answer of the one inference."""
    door.send()
    door.connected = False
    door.answer()
    door.connected = True
    door.send()
    assert [message.payload for message in door.published] == [b"y"]
    assert len(door.submitted) == 1
