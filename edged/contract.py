"""Words and numbers of the public contract beside the topics: what the messages of a device say."""

from __future__ import annotations

from enum import Enum

# The `format` of the metrics message.
METRICS_FORMAT = 1


class DeviceState(str, Enum):
    """The `state` of the status message. `lost` is the will: the broker says it in the device's place."""

    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    STUCK = "stuck"
    STOPPED = "stopped"
    LOST = "lost"


# In these states nobody is there to answer.
GONE = frozenset({DeviceState.STOPPED, DeviceState.LOST})
