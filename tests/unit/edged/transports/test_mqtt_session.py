"""Protocol fallback and reconnect delays, with a clock of our own."""

from __future__ import annotations

import statistics

import pytest

from edged.transports.mqtt_ledger import Suspect
from edged.transports.mqtt_session import Backoff, ProtocolChoice, SizeLimit
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
    """One or two early closes may be a restart."""
    choice = ProtocolChoice(MqttSettings("h"))
    assert [choice.closed_early(0), choice.closed_early(0), choice.closed_early(0)] == [False, False, True]
    assert choice.current == "3.1.1"


def test_3_after_early_closes_is_doubted_once() -> None:
    """Perhaps nobody was behind the port: once the broker is there, 5 is tried again, and one early close then is the
    answer."""
    choice = ProtocolChoice(MqttSettings("h"))
    assert [choice.closed_early(0) for _ in range(3)] == [False, False, True]
    assert (choice.accepted(), choice.current) == (False, "5")
    assert choice.closed_early(0)
    assert (choice.current, choice.accepted()) == ("3.1.1", True)
    again = ProtocolChoice(MqttSettings("h"))
    assert again.refused(0)
    assert again.accepted()  # said by the broker itself


def test_where_5_has_worked_it_takes_ten_early_closes() -> None:
    """A network that flaps, a broker that restarts behind a proxy."""
    choice = ProtocolChoice(MqttSettings("h"))
    assert choice.accepted()
    assert not any(choice.closed_early(0) for _ in range(9))
    choice.accepted()  # a connection that works starts the count anew
    assert [choice.closed_early(0) for _ in range(10)] == [False] * 9 + [True]
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
    assert backoff.delay_s() >= 16  # the more so since it looks like that
    backoff.lived(11 * _S)
    assert backoff.contested  # as long as the other one waits
    backoff.lived(129 * _S)
    assert not backoff.contested
    assert backoff.delay_s() <= 1


def test_ten_seconds_are_lasting_where_nothing_failed() -> None:
    """The first connection of all, and one after a short outage."""
    backoff = Backoff(MqttSettings("h", reconnect_min_s=1, reconnect_max_s=64))
    assert backoff.stable_ns == 10 * _S
    backoff.delay_s()
    backoff.lived(10 * _S)
    assert backoff.delay_s() <= 1


def test_a_broker_that_goes_away_is_no_twin() -> None:
    """Nothing answers between two short connections: it was the broker; unless it said that there is another client."""
    backoff = Backoff(MqttSettings("h"))
    for _ in range(4):
        backoff.lived(_S)
        backoff.unreached()
    assert not backoff.contested
    backoff.taken_over()
    backoff.unreached()
    assert (backoff.contested, backoff.told) == (True, True)
    backoff.lived(1000 * _S)
    assert not backoff.contested


def _suspect(size: int, who: str = "a", stuck_ns: int = 0) -> Suspect:
    return Suspect(size, who, stuck_ns)


def test_a_message_that_kills_three_connections_tells_the_limit() -> None:
    """It is given up, and what was learnt is believed for five minutes."""
    limit = SizeLimit()
    assert [limit.died(_suspect(40_000), 2 * _S, 0) for _ in range(3)] == [0, 0, 39_999]
    assert (limit.current(299 * _S), limit.current(300 * _S)) == (39_999, 0)
    limit.told = 20_000
    assert (limit.current(0), limit.current(300 * _S)) == (20_000, 20_000)
    stuck = [(9 * _S, _S // 2), (_S // 2, 2 * _S), (_S // 2, _S // 2)]  # since it was there, or the connection
    assert [limit.died(_suspect(50_000, "a", waited), lived, 0) for waited, lived in stuck] == [0, 0, 49_999]


@pytest.mark.parametrize(
    ("suspect", "lifetime_ns"),
    [(_suspect(50_000), 3 * _S), (_suspect(50_000, "b"), _S), (_suspect(50_000, "a", _S), _S), (None, _S)],
    ids=["it lived", "another message", "not written within a second", "nothing to blame"],
)
def test_what_is_no_sign_of_a_limit(suspect: Suspect | None, lifetime_ns: int) -> None:
    """After two deaths of one message a third connection that says nothing of it: the count begins anew."""
    limit = SizeLimit()
    assert [limit.died(_suspect(50_000), _S, 0) for _ in range(2)] == [0, 0]
    assert limit.died(suspect, lifetime_ns, 0) == 0
    assert [limit.died(_suspect(50_000), _S, 0) for _ in range(2)] == [0, 0]
    limit.acquit()
    assert limit.died(_suspect(50_000), _S, 0) == 0
    assert limit.current(0) == 0


def test_a_small_packet_that_is_too_large_is_no_limit() -> None:
    """It is given up, but a status must get out."""
    limit = SizeLimit()
    assert limit.exceeded(600, 0) == 599
    assert limit.current(0) == 0


def test_an_explanation_hides_no_other_sign() -> None:
    """Three short lives that a message explains are none of a twin's; what the broker said stays, and so do others."""
    backoff = Backoff(MqttSettings("h", reconnect_min_s=1, reconnect_max_s=64))
    for _ in range(3):
        backoff.delay_s()
        backoff.lived(_S)
    backoff.explained(3)
    assert not backoff.contested
    assert backoff.delay_s() <= 1
    for _ in range(6):
        backoff.lived(_S)
    backoff.explained(3)
    assert backoff.contested
    backoff.lived(1000 * _S)
    backoff.taken_over()
    backoff.explained(3)
    assert (backoff.contested, backoff.told) == (True, True)


def test_whether_the_broker_was_away_between_two_connections() -> None:
    """From the first attempt that reached nothing to the end of the next connection."""
    backoff = Backoff(MqttSettings("h"))
    assert not backoff.away
    backoff.unreached()
    assert backoff.away
    backoff.lived(_S)
    assert not backoff.away
