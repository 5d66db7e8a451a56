"""The one rule for a will: who may say that a device is lost."""

from __future__ import annotations

import itertools
import json

import pytest

from edged.client.fleet import Fleet
from edged.client.status import Status, believed, parse_status
from edged.client.watch import StatusWatch
from edged.contract import DeviceState
from edged.transports.base import Message

TOPIC = "edged/v1/dev/press-07/status"


def _status(state: str, boot: str) -> Status:
    status = parse_status(json.dumps({"state": state, "boot": boot}).encode(), 0)
    assert status is not None
    return status


@pytest.mark.parametrize("state", list(DeviceState))
def test_only_a_will_can_be_out_of_date(state: DeviceState) -> None:
    """Whatever a device itself says is believed; a will is, unless another boot has spoken since."""
    for boots, lost_counts in (((), True), (("mine",), True), (("other",), False), (("other", "mine"), True)):
        assert believed(_status(state, "mine"), boots) == (lost_counts or state != "lost")


def test_a_will_names_no_boot_that_lives() -> None:
    """After a will of one boot, that of another one counts as well: nobody is known to be there."""
    assert _status("lost", "b").boots == frozenset()
    assert _status("draining", "b").boots == {"b"}


_WORDS = list(itertools.product(["ready", "lost"], ["old", "new"]))


@pytest.mark.parametrize("said", [first + second for first, second in itertools.product(_WORDS, _WORDS)])
def test_client_and_fleet_judge_alike(said: tuple[str, str, str, str]) -> None:
    """Two statuses, in every order of states and boots: `Client.status` and `edged top` end in the same state."""
    watch, fleet = StatusWatch(["press-07"]), Fleet()
    for state, boot in (said[:2], said[2:]):
        message = Message(TOPIC, json.dumps({"state": state, "boot": boot}).encode())
        watch.take(message)
        fleet.take(message)
    known = watch.known("press-07")
    assert known is not None
    assert known.state == fleet.snapshot()[0].state
    stale = said[0] == "ready" and said[2] == "lost" and said[1] != said[3]
    assert known.state == (said[0] if stale else said[2])
