"""The URL of a broker: one reader for devices and requesters, which tells no password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged import Client
from edged.brokerurl import parse, tls_problems
from edged.config import BrokerConfig
from edged.errors import UsageError
from edged.transports.mqtt_settings import MqttSettings


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("mqtt://h", ("h", 1883, False)), ("mqtts://h", ("h", 8883, True)),
        ("mqtt://10.0.0.1:1/", ("10.0.0.1", 1, False)), ("mqtt://[::1]:1884", ("::1", 1884, False)),
        ("mqtts://a-b.c_d:65535", ("a-b.c_d", 65_535, True)), ("MQTTS://Plant", ("Plant", 8883, True)),
    ],
)  # fmt: skip
def test_places(url: str, place: tuple[str, int, bool]) -> None:
    """The scheme, in any case, gives TLS and the port; IPv6 stands in brackets. Device and requester read the same."""
    assert parse(url, allow_login=False)[:3] == parse(url, allow_login=True)[:3] == place
    settings = MqttSettings.from_url(url)
    assert (settings.host, settings.port, settings.tls) == BrokerConfig(url=url).address[:3] == place


@pytest.mark.parametrize(
    "url",
    [
        "", "h", "h:1883", "http://h", "mqtt:h", "mqtt://", "mqtt://:1883", "mqtt://h:0", "mqtt://h:65536",
        "mqtt://h:123456", "mqtt://h:", "mqtt://h:x", "mqtt://h/topic", "mqtt://h?x", "mqtt://h#x", "mqtt://a b",
        "mqtt://a\nb", "mqtt://[::1", "mqtt://[x]", "mqtt\u017f://h", " mqtt://h", "mqtt://h ",
    ],
)  # fmt: skip
def test_what_is_no_url_of_a_broker(url: str) -> None:
    """Another scheme, no host, no port number from 1 to 65535, anything after them."""
    for allow_login in (False, True):
        with pytest.raises(ValueError, match=r"expected mqtt://host|port \d+ is not"):
            parse(url, allow_login=allow_login)


@pytest.mark.parametrize(
    ("login", "expected"),
    [("u:p", ("u", "p")), ("u", ("u", None)), ("u:", ("u", None)), ("", (None, None)), ("a%40b:%3A%2F", ("a@b", ":/"))],
)
def test_logins(login: str, expected: tuple[str | None, str | None]) -> None:
    """Percent-encoded user and password, where they are allowed."""
    assert parse(f"mqtt://{login}@h", allow_login=True)[3:] == expected
    with pytest.raises(ValueError, match="credentials do not belong"):
        parse(f"mqtt://{login}@h", allow_login=False)


@given(st.text(max_size=8), st.sampled_from(["mqtt://", "http://", "mqtt:", ""]), st.booleans())
def test_no_error_tells_a_password(junk: str, scheme: str, allow_login: bool) -> None:
    """Wherever the URL is wrong, what stands before an @ is not repeated."""
    with pytest.raises(ValueError, match=r"expected mqtt|port|credentials") as caught:
        parse(f"{scheme}u:hunter2{junk}@host:99999", allow_login=allow_login)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("tls", "ca", "cert", "key", "wrong"),
    [
        (True, True, True, True, []), (True, False, False, False, []), (False, False, False, False, []),
        (True, False, True, False, ["key_file"]), (True, False, False, True, ["cert_file"]),
        (False, True, False, False, ["ca_file"]), (False, False, True, True, ["cert_file", "key_file"]),
    ],
)  # fmt: skip
def test_tls_files(tls: bool, ca: bool, cert: bool, key: bool, wrong: list[str]) -> None:
    """TLS files need mqtts, a certificate its key, a key its certificate."""
    assert [name for name, _ in tls_problems(tls=tls, ca=ca, cert=cert, key=key)] == wrong


@pytest.mark.parametrize(
    "url",
    ["mqtt://u:hun/ter2@h", "mqtt://u:hun#ter2@h", "mqtt://u:hun?ter2@h", "u:hunter2://x@h", "mqtt://u:hunter2",
     "mqtt://u:1883hunter2", "mqtt://u:12345/hunter2@h", "http://u:hunter2@h", "u:hunter2@h", "u:hunter2"],
)  # fmt: skip
def test_a_password_in_a_wrong_place_is_not_told(url: str) -> None:
    """What may be a password is left out, also where its own characters end the login, or the host is missing."""
    for allow_login in (False, True):
        with pytest.raises(ValueError, match=r"expected mqtt|credentials") as caught:
            parse(url, allow_login=allow_login)
        assert not any(part in str(caught.value) for part in ("hun", "ter2"))
    with pytest.raises(UsageError) as refused:
        Client(url)
    assert not any(part in str(refused.value) for part in ("hun", "ter2"))


@pytest.mark.parametrize("host", ["a..b", "a" * 64, ".b"])
def test_host_names_that_no_network_knows(host: str) -> None:
    """A label is 1 to 63 bytes; what cannot be looked up is told before anybody waits for it."""
    with pytest.raises(ValueError, match="cannot be a host's name"):
        parse(f"mqtt://{host}", allow_login=True)
