"""URLs and settings of MQTT connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from edged.errors import UsageError
from edged.transports.mqtt_settings import MqttSettings


def test_user_and_password_of_the_url_are_unquoted_and_options_win() -> None:
    """`%40` is an at sign; an option replaces what the URL says."""
    settings = MqttSettings.from_url("mqtt://me:p%40ss@h", username="other")
    assert (settings.username, settings.password) == ("other", "p@ss")


def test_no_password_in_repr() -> None:
    """Settings may be logged."""
    assert "secret" not in repr(MqttSettings.from_url("mqtt://u:secret@h"))


@pytest.mark.parametrize("url", ["http://h", "mqtt://", "mqtt://u:secret@h:99999", "mqtt://u:secret@h/topic", "h:1883"])
def test_bad_urls_are_usage_errors_without_the_password(url: str) -> None:
    """A wrong URL is a person's mistake, and its message does not tell the password."""
    with pytest.raises(UsageError) as caught:
        MqttSettings.from_url(url)
    assert "secret" not in str(caught.value)


def test_settings_that_contradict_each_other() -> None:
    """A session is resumed under a fixed id; a key needs a certificate; the protocol is one of three."""
    with pytest.raises(UsageError, match="client id"):
        MqttSettings("h", resume=True)
    with pytest.raises(UsageError, match="certificate"):
        MqttSettings("h", tls=True, key_file=Path("k"))
    with pytest.raises(UsageError, match="mqtts://"):
        MqttSettings("h", ca_file=Path("ca"))
    with pytest.raises(UsageError, match="auto"):
        MqttSettings("h", protocol="4")  # type: ignore[arg-type]  # the mistake under test


def test_an_unknown_option_is_a_usage_error() -> None:
    """It came from a person, by way of `Client`."""
    with pytest.raises(UsageError, match="no_such"):
        MqttSettings.from_url("mqtt://h", no_such=1)
