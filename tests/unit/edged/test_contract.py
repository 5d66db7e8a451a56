"""The words of the public contract."""

from __future__ import annotations

import json

from edged.contract import GONE, METRICS_FORMAT, DeviceState


def test_states_are_their_texts() -> None:
    """In JSON, in comparisons and in sets a state is the word of the contract."""
    words = ["starting", "ready", "degraded", "draining", "stuck", "stopped", "lost"]
    assert json.dumps(list(DeviceState)) == json.dumps(words)
    assert [DeviceState(word).value for word in words] == words
    assert {*words} == {*DeviceState}
    assert [word for word in words if word in GONE] == ["stopped", "lost"]


def test_metrics_format() -> None:
    """A reader of another number must not guess; changing it breaks every reader."""
    assert METRICS_FORMAT == 1
