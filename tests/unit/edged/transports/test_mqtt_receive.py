"""Packets out of bytes that come as they like. Expected values are built here, by the packet's layout."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edged.clock import now_ns
from edged.request import Buffer
from edged.transports.mqtt_buffers import IDLE_NS, STEP
from edged.transports.mqtt_receive import AHEAD, LARGE, TRUSTED, MalformedError, Receiver

_SIZES = st.one_of(
    st.integers(0, 300), st.sampled_from([127, 128, 16_383, 16_384, LARGE, STEP, 2 * STEP, 300_000]), st.just(2_000_000)
)


def _packet(command: int, body: bytes) -> bytes:
    length, out = len(body), bytes((command,))
    while length > 127:
        out, length = out + bytes((length & 127 | 128,)), length >> 7
    return out + bytes((length,)) + body


class _Socket:
    """Hands out given bytes, at most so many at a time; then there is nothing for the moment."""

    def __init__(self, data: bytes, steps: Iterator[int]) -> None:
        self.data, self._steps, self.asked = memoryview(data), steps, list[int]()

    def recv_into(self, into: memoryview) -> int:
        self.asked.append(len(into))
        if not self.data:
            raise BlockingIOError
        count = min(next(self._steps), len(into), len(self.data))
        into[:count] = self.data[:count]
        self.data = self.data[count:]
        return count


def _all(receiver: Receiver, sock: _Socket) -> list[tuple[int, memoryview]]:
    found = []
    while sock.data:
        receiver.receive(sock)
        while receiver.next_packet():
            found.append((receiver.command, receiver.buffer.part(receiver.at, receiver.end)))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(_SIZES, min_size=1, max_size=8), st.integers(0, 2**32), st.booleans())
def test_packets_come_whole_however_they_are_cut(sizes: list[int], seed: int, keep: bool) -> None:
    """Each packet once, in order, in one piece; parts that are kept stay what they were while others come in."""
    rng = random.Random(seed)
    bodies = [rng.randbytes(size) for size in sizes]
    stream = b"".join(_packet(0x30 | number, body) for number, body in enumerate(bodies))
    most = (1, 2, 3, 100, 5_000, 65_536) if len(stream) < 100_000 else (65_536,)
    sock, receiver, found = (
        _Socket(stream, iter(lambda: rng.choice(most), None)),
        Receiver(),
        list[tuple[int, Buffer]](),
    )
    while sock.data:
        receiver.receive(sock)
        while receiver.next_packet():
            part = receiver.buffer.part(receiver.at, receiver.end)
            found.append((receiver.command, part if keep else bytes(part)))
    assert found == [(0x30 | number, body) for number, body in enumerate(bodies)]


def test_every_cut_of_a_packet() -> None:
    """Cut at each byte, in its length too."""
    stream = _packet(0x30, b"x" * 300) + _packet(0x31, b"") + _packet(0x32, b"y" * 20_000)
    for cut in range(1, 310):
        steps = iter([cut, *[100_000] * 10])
        assert [len(part) for _, part in _all(Receiver(), _Socket(stream, steps))] == [300, 0, 20_000]


def test_small_packets_are_read_together_and_not_moved() -> None:
    """Many in one read; those that lie in a full chunk are not copied but for one that is cut by its end."""
    receiver = Receiver()
    stream = _packet(0x30, b"x" * 98) * 4000
    sock = _Socket(stream, iter(lambda: 1 << 30, None))
    assert len(_all(receiver, sock)) == 4000
    chunks = len(stream) // STEP + 1
    assert len(sock.asked) <= len(stream) // AHEAD + 2 * chunks
    assert receiver.copied <= chunks * AHEAD


def test_a_large_payload_is_read_to_its_place() -> None:
    """Only what was read before its length was known is copied; the read ends where the packet ends."""
    receiver = Receiver()
    stream = _packet(0x30, b"x" * 600_000) * 20
    sock = _Socket(stream, iter(lambda: 1 << 30, None))
    count = 0
    while sock.data:
        receiver.receive(sock)
        while receiver.next_packet():
            count += 1
    assert count == 20
    assert receiver.copied == 20 * AHEAD
    assert receiver.pool.made == 2  # a chunk and the large one, taken in turns


def test_four_bytes_cost_no_memory() -> None:
    """A length of 256 MB is not believed before bytes come; then at most four times what came is allocated."""
    receiver = Receiver()
    head = b"\x30\xff\xff\xff\x7f"
    tracemalloc.start()
    sock = _Socket(head, iter(lambda: 1 << 30, None))
    receiver.receive(sock)
    assert not receiver.next_packet()
    assert tracemalloc.get_traced_memory()[1] < 2 * TRUSTED
    sent = 5
    for _ in range(12):
        part = b"x" * 500_000
        sock = _Socket(part, iter(lambda: 1 << 30, None))
        while sock.data:
            receiver.receive(sock)
            assert not receiver.next_packet()
        sent += len(part)
        assert receiver.buffer.size <= max(4 * sent, TRUSTED) + STEP
    tracemalloc.stop()


def test_what_was_believed_once_is_believed_for_a_while() -> None:
    """The second packet of 5 MB is not moved as it grows; some time later the first one would be again."""
    receiver = Receiver()
    packet = _packet(0x30, b"x" * 5_000_000)

    def copied() -> int:
        before = receiver.copied
        assert len(_all(receiver, _Socket(packet, iter(lambda: 1 << 30, None)))) == 1
        return receiver.copied - before

    first = copied()
    assert first > TRUSTED
    assert copied() == AHEAD
    receiver.trim(now_ns() + IDLE_NS + 1)
    assert copied() == first


def test_large_memory_is_given_up() -> None:
    """After a while without large packets, what they needed is gone; a small one is still read."""
    receiver = Receiver()
    assert _all(receiver, _Socket(_packet(0x30, b"x" * 5_000_000), iter(lambda: 1 << 30, None)))
    assert receiver.pool.kept() > 5_000_000
    later = now_ns() + IDLE_NS + 1
    receiver.trim(later)
    assert receiver.pool.kept() <= STEP
    assert len(_all(receiver, _Socket(_packet(0x30, b"y"), iter([100])))) == 1


def test_a_length_of_five_bytes_is_refused() -> None:
    """It would be read for ever."""
    receiver = Receiver()
    receiver.receive(_Socket(b"\x30\xff\xff\xff\xff\x01", iter([100])))
    with pytest.raises(MalformedError):
        receiver.next_packet()


def test_the_end_is_told() -> None:
    """A closed connection is no packet."""
    sock = _Socket(b"x", iter([0]))
    with pytest.raises(EOFError):
        Receiver().receive(sock)


def test_another_connection_begins_at_a_packet() -> None:
    """Half a packet of the connection before is forgotten, a large one too."""
    receiver = Receiver()
    for size in (100, 1_000_000):
        receiver.receive(_Socket(_packet(0x30, b"x" * size)[:50], iter([50])))
        assert not receiver.next_packet()
        receiver.reset(records=False)
        assert [bytes(part) for _, part in _all(receiver, _Socket(_packet(0x30, b"new"), iter([100])))] == [b"new"]


def test_whether_more_may_be_there() -> None:
    """A read that filled what was offered may have left more; TLS always may, a large packet read whole did not."""
    receiver = Receiver()
    assert receiver.receive(_Socket(b"\x30\x7f" + b"x" * 5000, iter([AHEAD])))
    receiver.reset(records=False)
    assert not receiver.receive(_Socket(b"\xc0\x00", iter([10])))
    receiver.reset(records=True)
    assert receiver.receive(_Socket(b"\xc0\x00", iter([10])))
    receiver.reset(records=False)
    large = _Socket(_packet(0x30, b"x" * 100_000) + b"\xc0\x00", itertools.repeat(1_000_000))
    assert [(receiver.receive(large), receiver.next_packet()) for _ in range(2)] == [(True, False), (False, True)]


def test_when_a_packet_began() -> None:
    """The mark of each is the read that brought its first byte."""
    receiver, marks = Receiver(), list[int]()
    reads = list[int]()
    for chunk in (b"\xc0\x00\xd0", b"\x00\x30\x05abc", b"de"):
        receiver.receive(_Socket(chunk, iter([100])))
        reads.append(receiver.read_ns)
        while receiver.next_packet():
            marks.append(receiver.first_ns)
    assert marks == [reads[0], reads[0], reads[1]]
