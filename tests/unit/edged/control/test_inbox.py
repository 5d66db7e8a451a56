"""What comes for control is copied, bounded, and control itself is not there before anything comes."""

from __future__ import annotations

import subprocess
import sys

from edged.control.inbox import MAX_COMMANDS, Inbox
from edged.transports.base import Message

CMD = "edged/v1/dev/box/cmd/"
DESIRED = "edged/v1/dev/box/desired/models"


def inbox() -> tuple[Inbox, list[int]]:
    woken: list[int] = []
    return Inbox("box", lambda: woken.append(1)), woken


def test_messages_are_copied_and_handed_out_once() -> None:
    """A view of the network's memory is not kept; of two wishes the last one counts."""
    box, woken = inbox()
    memory = bytearray(b'{"id": "1"}')
    assert box.on_message(Message(CMD + "reload", memoryview(memory), retain=True))
    memory[:] = b"x" * len(memory)
    told = box.command()
    assert told is not None
    assert (told.verb, told.payload, told.retained) == ("reload", b'{"id": "1"}', True)
    assert box.command() is None
    box.on_message(Message(DESIRED, b"1"))
    box.on_message(Message(DESIRED, b"2"))
    assert (box.desired(), box.desired(), len(woken)) == (b"2", None, 3)


def test_others_messages_are_left_to_others() -> None:
    """Another device's, a request, a report of our own."""
    box, woken = inbox()
    for topic in ("edged/v1/dev/other/cmd/reload", "edged/v1/dev/box/req/m/c/u", "edged/v1/dev/box/reported/models"):
        assert not box.on_message(Message(topic, b""))
    assert (box.used, woken) == (False, [])


def test_wishes_can_be_left_to_nobody() -> None:
    """Even where a broker delivers what was not subscribed to."""
    box = Inbox("box", lambda: None, desired=False)
    assert not box.on_message(Message(DESIRED, b"1"))
    assert box.desired() is None


def test_a_flood_is_bounded_and_counted() -> None:
    """Commands beyond the most are dropped; bytes beyond the most are cut off, and refused for it later."""
    box, _ = inbox()
    for _ in range(MAX_COMMANDS + 5):
        box.on_message(Message(CMD + "reload", b"x"))
    assert box.dropped == 5
    while box.command():
        pass
    for _ in range(70):
        box.on_message(Message(CMD + "reload", b"x" * 1_000_000))
    assert box.dropped == 5 + 7
    told = box.command()
    assert told is not None
    assert len(told.payload) == 65_537
    box.on_message(Message(CMD + "reload", b"x" * 1_000_000))
    assert box.dropped == 5 + 7


def test_a_daemon_that_is_told_nothing_imports_none_of_it() -> None:
    """Its memory is a feature."""
    code = (
        "import sys, edged.daemon; sys.exit('edged.control.thread' in sys.modules or 'edged.swap' in sys.modules "
        "or 'urllib.request' in sys.modules or 'edged.control.desired' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
