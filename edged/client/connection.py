"""The MQTT connection of a requester: short-lived session, quick to come back, its own client id."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edged.errors import UsageError

if TYPE_CHECKING:
    from edged.transports.base import Transport
    from edged.transports.mqtt_settings import MqttSettings

# Long enough for replies to outlive a reconnect, short enough that a client which is gone costs the broker little.
SESSION_EXPIRY_S = 30
# A person or a machine is waiting: a broker that is back is found within this.
RECONNECT_MAX_S = 5.0
_FILES = ("ca_file", "cert_file", "key_file")


def requester_settings(url: str, options: dict[str, Any]) -> MqttSettings:
    """Read the URL and the options (fields of `MqttSettings`, None for the default); raises UsageError."""
    from edged.transports.mqtt_settings import MqttSettings  # noqa: PLC0415 - a given transport needs none of it

    given = {key: value for key, value in options.items() if value is not None}
    unknown = given.keys() - {field.name for field in dataclasses.fields(MqttSettings)}
    if unknown:
        raise UsageError(sorted(unknown)[0], "not an option of an MQTT connection")
    files = {key: Path(given[key]) for key in _FILES if key in given}
    defaults = {"session_expiry_s": SESSION_EXPIRY_S, "reconnect_max_s": RECONNECT_MAX_S}
    return MqttSettings.from_url(url, **{**defaults, **given, **files})


def mqtt_transport(settings: MqttSettings) -> Transport:
    """A transport for `settings`, not yet started."""
    from edged.transports.mqtt import MqttTransport  # noqa: PLC0415 - paho is loaded for who connects

    return MqttTransport(settings)
