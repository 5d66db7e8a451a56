"""From what the rooms tell to samples: by convention, for whatever they tell, and not more often than it is of use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import promtext
from support.engines import ScriptedEngine
from support.rig import WorkerRig

from edged.prometheus import figures as module
from edged.prometheus.figures import Figures, Sources

TRANSPORT: dict[str, object] = {
    "name": "mqtt", "received": 7, "connected": 1, "outgoing_bytes": 12, "intake": {"requests": 5},
    "outbox": {"stored": 3, "bytes": 100, "trouble": ""}, "nothing": None,
}  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[WorkerRig]:
    rig = WorkerRig(tmp_path, ScriptedEngine).start()
    yield rig
    rig.stop()


def sources(rig: WorkerRig, transport: dict[str, object] | None = None) -> Sources:
    streams: dict[str, Any] = {"imu": {"windows": 4, "keys": 2}}
    return Sources("box", {"m": rig.worker}, lambda: transport or TRANSPORT, lambda: streams)


def scraped(figures: Figures) -> dict[str, promtext.Family]:
    return promtext.parse(figures.page().decode())


def test_counters_of_every_room_by_convention(rig: WorkerRig) -> None:
    """Counts end in `_total`, what goes up and down does not, groups are in the name, words are left out."""
    found = scraped(Figures(sources(rig)))
    expected = {
        "edged_transport_received_total": 7, "edged_transport_connected": 1, "edged_transport_outgoing_bytes": 12,
        "edged_transport_intake_requests_total": 5, "edged_transport_outbox_stored_total": 3,
        "edged_transport_outbox_bytes": 100,
    }  # fmt: skip
    assert {name: promtext.value(found, name, device="box") for name in expected} == expected
    assert promtext.value(found, "edged_stream_windows_total", stream="imu") == 4
    assert promtext.value(found, "edged_stream_keys", stream="imu") == 2
    assert not any("trouble" in name or "nothing" in name for name in found)


def test_a_model_that_serves(rig: WorkerRig) -> None:
    """Its requests, answers, delegate and version stand under its name."""
    rig.router.submit(rig.inbox.request(bytes(12)))
    rig.inbox.get()
    found = scraped(Figures(sources(rig)))
    info = {"version": "4", "delegate": rig.worker.info.delegate if rig.worker.info else ""}
    assert promtext.value(found, "edged_model_info", model="m", **info) == 1
    assert promtext.value(found, "edged_replies_total", model="m", code="OK") == 1
    assert promtext.value(found, "edged_request_stage_duration_seconds_count", model="m", stage="infer") == 1
    assert promtext.value(found, "edged_queue_requests", model="m") == 0


def test_many_scrapers_cost_one_page(rig: WorkerRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tenth of a second the page is made once; later it is of then."""
    now = [10**9]
    monkeypatch.setattr(module, "now_ns", lambda: now[0])
    told = dict(TRANSPORT)
    figures = Figures(sources(rig, told))
    first = figures.page()
    told["received"] = 8
    assert figures.page() is first
    now[0] += 10**8 + 1
    assert promtext.value(scraped(figures), "edged_transport_received_total") == 8
