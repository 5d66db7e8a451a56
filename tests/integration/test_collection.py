"""The collector beside a whole daemon, in this process: never in a thread that serves, and nothing is left behind."""

from __future__ import annotations

import gc
import json
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from support import require, tinymodel
from support.brokers import eventually

from edged import config
from edged.daemon import Daemon
from edged.transports.base import Message, Subscription
from edged.transports.loopback import open_url
from edged.worker import ModelState

REQUESTS = 400


class Cycle:
    """Only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


class Rig:
    """A daemon on a loopback bus of its own, and someone who asks."""

    def __init__(self, directory: Path) -> None:
        tinymodel.write_dense_bundle(directory / "dense")
        models = [{"name": "dense", "bundle": "dense"}]
        body = {"device": "box", "broker": {"url": "mqtt://unused"}, "models": models, "state_dir": "state"}
        read = config.loads(json.dumps(body), "edged.yaml", directory)
        url = f"loopback://{directory}"
        self.daemon = Daemon(read, open_url(url))
        self.thread = threading.Thread(target=self.daemon.run)
        self.replies: SimpleQueue[Message] = SimpleQueue()
        self.asker = open_url(url)
        self.asker.start(self.replies.put, [Subscription("edged/v1/resp/u/#", 1)])
        self.thread.start()
        self.asked = 0
        worker = self.daemon._parts.workers["dense"]
        eventually(lambda: worker.state is ModelState.READY, "the model is ready", timeout_s=20)

    def ask(self) -> Message:
        """Send one request and wait for its answer."""
        self.asked += 1
        spec = self.daemon._parts.workers["dense"].plan.bundle.manifest.inputs[0]
        payload = np.zeros(spec.shape, spec.wire_dtype).tobytes()
        self.asker.publish(
            Message(
                "edged/v1/dev/box/req/dense/c/u", payload, 1, response_topic="edged/v1/resp/u/r",
                correlation=str(self.asked).encode(), content_type="application/octet-stream",
            )
        )  # fmt: skip
        return self.replies.get(timeout=20)

    def settled(self) -> None:
        """Wait until the start is over and the collector has its schedule."""
        eventually(lambda: self.daemon._memory.told != "off", "the daemon settles", timeout_s=20)

    def stop(self) -> None:
        self.daemon.request_stop()
        self.thread.join()
        self.asker.stop()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    require.any_runtime()
    rig = Rig(tmp_path)
    yield rig
    rig.stop()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_no_collection_in_a_request(rig: Rig) -> None:
    """Under steady load, with cycles made beside it: only the main thread collects, with nothing in flight; and the
    cycles are freed all the same."""
    assert rig.ask().payload
    rig.settled()
    found: list[tuple[int | None, bool]] = []

    def note(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            found.append((threading.get_ident(), rig.daemon._in_flight()))

    gc.callbacks.append(note)
    try:
        cycles: list[weakref.ref[Cycle]] = []
        for _ in range(REQUESTS):
            rig.ask()
            cycles += [weakref.ref(Cycle()) for _ in range(5)]
            time.sleep(0.004)
    finally:
        gc.callbacks.remove(note)
    assert found
    assert {thread for thread, _ in found} == {rig.thread.ident}
    # A request may still come in between the look and the collection.
    assert sum(in_flight for _, in_flight in found) <= 1
    eventually(lambda: sum(cycle() is not None for cycle in cycles) < len(cycles) / 2, "cycles are freed", timeout_s=10)


def test_a_request_leaves_nothing_to_collect(rig: Rig) -> None:
    """The whole path makes no cycle: what a request allocates goes with it, so that the collector has nothing to do."""
    for _ in range(50):
        rig.ask()
    rig.settled()
    gc.collect()
    for _ in range(200):
        rig.ask()
    assert gc.collect() < 20  # objects; of the test's own, and of a status in between


def test_the_status_tells_what_was_achieved(rig: Rig) -> None:
    """Each thread's scheduling and the memory's state stand in the status, permitted or not."""
    rig.ask()
    rig.settled()
    facts = rig.daemon._status_facts()
    for key in ("network_scheduling", "deadline_scheduling", "main_scheduling"):
        assert str(facts[key]).startswith(("nice -20", "fifo"))
    assert facts["memory_lock"] in ("locked", "not permitted")
