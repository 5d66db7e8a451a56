"""URLs and settings of MQTT connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from edged.errors import UsageError
from edged.transports.mqtt_settings import MqttSettings


@pytest.mark.parametrize(
    ("url", "host", "port", "tls"),
    [
        ("mqtt://plant", "plant", 1883, False),
        ("mqtts://plant", "plant", 8883, True),
        ("mqtt://10.0.0.1:1999/", "10.0.0.1", 1999, False),
        ("mqtt://[::1]:1884", "::1", 1884, False),
    ],
)
def test_from_url(url: str, host: str, port: int, tls: bool) -> None:
    """Scheme, host and port become fields, with the registered default ports."""
    settings = MqttSettings.from_url(url)
    assert (settings.host, settings.port, settings.tls) == (host, port, tls)


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
        MqttSettings("h", key_file=Path("k"))
    with pytest.raises(UsageError, match="auto"):
        MqttSettings("h", protocol="4")  # type: ignore[arg-type]  # the mistake under test
