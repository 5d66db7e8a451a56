"""Protocol fallback and reconnect delays, with a clock of our own."""

from __future__ import annotations

import statistics

from edged.transports.mqtt_session import Backoff, ProtocolChoice
from edged.transports.mqtt_settings import MqttSettings

_S = 1_000_000_000


def test_refusal_falls_back_at_once_and_5_is_tried_again_later() -> None:
    """Refused → 3.1.1; after `retry_v5_s`, and not before, the next attempt is MQTT 5 again."""
    choice = ProtocolChoice(MqttSettings("h", retry_v5_s=60))
    assert choice.current == "5"
    assert choice.refused(now=0)
    choice.accepted()
    choice.before_attempt(59 * _S)
    assert choice.current == "3.1.1"
    choice.before_attempt(60 * _S)
    assert choice.current == "5"
    assert choice.fallbacks == 1


def test_closed_three_times_before_connack_falls_back() -> None:
    """One or two early closes may be a restart; a connection that worked in between starts the count anew."""
    choice = ProtocolChoice(MqttSettings("h"))
    assert [choice.closed_early(0), choice.closed_early(0)] == [False, False]
    choice.accepted()
    assert [choice.closed_early(0), choice.closed_early(0), choice.closed_early(0)] == [False, False, True]
    assert choice.current == "3.1.1"


def test_one_early_close_is_enough_where_3_is_known_to_work() -> None:
    """The periodic try of MQTT 5 costs one connection, not three."""
    choice = ProtocolChoice(MqttSettings("h", retry_v5_s=1))
    choice.refused(0)
    choice.accepted()
    choice.before_attempt(2 * _S)
    assert choice.closed_early(2 * _S)
    assert choice.current == "3.1.1"


def test_a_broker_that_closes_3_leads_back_to_5() -> None:
    """A broker which only speaks MQTT 5 and was down for a while is found again."""
    choice = ProtocolChoice(MqttSettings("h"))
    choice.refused(0)
    assert [choice.closed_early(0) for _ in range(3)] == [False, False, True]
    assert choice.current == "5"


def test_a_fixed_protocol_stays() -> None:
    """Without "auto" nothing is switched."""
    for protocol in ("5", "3.1.1"):
        choice = ProtocolChoice(MqttSettings("h", protocol=protocol))  # type: ignore[arg-type]  # both are valid
        assert not choice.refused(0)
        assert not any(choice.closed_early(0) for _ in range(10))
        choice.before_attempt(10**18)
        assert choice.current == protocol


def test_delays_double_to_the_maximum_with_jitter() -> None:
    """Each delay lies between half and all of min(max, min * 2**n), and two clients do not agree."""
    settings = MqttSettings("h", reconnect_min_s=1, reconnect_max_s=8)
    series = []
    for _ in range(50):
        backoff = Backoff(settings)
        series.append([backoff.delay_s() for _ in range(6)])
    for ceiling, delays in zip((1, 2, 4, 8, 8, 8), zip(*series, strict=True), strict=True):
        assert all(ceiling / 2 <= delay <= ceiling for delay in delays)
        assert statistics.stdev(delays) > ceiling / 20


def test_only_a_lasting_connection_resets_the_delay() -> None:
    """Connections that are cut at once (a second client with our id) keep the delay growing and are told."""
    backoff = Backoff(MqttSettings("h", reconnect_min_s=1, reconnect_max_s=64))
    for _ in range(3):
        backoff.delay_s()
        backoff.lived(1 * _S)
    assert backoff.contested
    assert backoff.delay_s() >= 4
    backoff.lived(11 * _S)
    assert not backoff.contested
    assert backoff.delay_s() <= 1
