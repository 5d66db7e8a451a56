"""What a local producer leaves behind when it goes: nothing that holds a queue, or memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.brokers import eventually
from support.rawproducer import RawProducer

from edged.affinity import ThreadPolicy
from edged.config import LocalConfig
from edged.errors import Code, RequestError
from edged.intake import Intake
from edged.local import LocalIntake
from edged.quota import Quota
from edged.replies import ReplyMemory
from edged.request import Reply, Request


class Rooms:
    """Local producers before a queue that nobody works on; two requests each, one producer at a time."""

    def __init__(self, path: Path) -> None:
        self.queued: list[Request] = []
        self.failed: list[tuple[Request, Code]] = []
        self.quota = Quota(2)
        beside = Intake(self.queued.append, lambda *_: True, ReplyMemory(1 << 20, 60), lambda _: 60_000, self.quota)
        config = LocalConfig(socket=path, slots=2, slot_bytes=1000, max_producers=1)
        self.local = LocalIntake(config, "box", beside, ThreadPolicy(), self.fail)
        self.local.start()

    def fail(self, request: Request, error: RequestError) -> None:
        if request.claim():
            self.failed.append((request, error.code))
            request.respond(request, Reply.failure(error), None)


@pytest.fixture
def rooms(socket_path: Path) -> Iterator[Rooms]:
    rooms = Rooms(socket_path)
    yield rooms
    rooms.local.stop(1)


def test_what_a_producer_had_asked_is_given_up_when_it_goes(rooms: Rooms, socket_path: Path) -> None:
    """However long its deadlines are: the next one finds room, and its user's limit free; an answered one is left."""
    with RawProducer(socket_path) as first:
        first.send(0, b"answered")
        eventually(lambda: len(rooms.queued) == 1, "it is queued")
        rooms.fail(rooms.queued[0], RequestError(Code.INTERNAL, "the answer"))
        first.reply()
        for slot in range(2):
            first.send(slot, b"x" * 1000, deadline_ms=600_000)
        eventually(lambda: len(rooms.queued) == 3, "both are queued")
        assert rooms.quota._unanswered == {f"local/{os.getuid()}": 2}
    eventually(lambda: len(rooms.failed) == 3, "both are given up")
    assert [code for _, code in rooms.failed[1:]] == [Code.CANCELLED] * 2
    assert {id(request) for request, _ in rooms.failed} == {id(request) for request in rooms.queued}
    assert rooms.quota._unanswered == {}
    assert rooms.local.facts()["dropped_gone"] == 2
    eventually(lambda: rooms.local.facts()["producers"] == 0, "it is gone")
    with RawProducer(socket_path) as second:
        assert second.memory is not None
