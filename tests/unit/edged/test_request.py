"""A request is answered once, whoever gets there first."""

from __future__ import annotations

import threading

from support.requests import Inbox


def test_only_one_of_many_threads_wins_the_claim() -> None:
    """Eight threads claim each of 300 requests at once: exactly one wins each time."""
    inbox = Inbox()
    for _ in range(300):
        request, wins, gate = inbox.request(), [], threading.Barrier(8)

        def contend(request=request, wins=wins, gate=gate) -> None:
            gate.wait()
            if request.claim():
                wins.append(1)

        threads = [threading.Thread(target=contend) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == 1


def test_a_claim_drops_the_payload() -> None:
    """An answered request may wait in the deadline heap for long; it must not hold its payload there."""
    request = Inbox().request(b"x" * 1000)
    request.claim()
    assert len(request.payload) == 0
    assert request.size == 1000
