"""rumqttd from the iotcore wheel as a child process: `python -m edged.broker_iotcore CONFIG.toml`.

It has no way to shut down, so it gets a process of its own, which also ends when its standard input closes:
when the parent is gone, however it went.
"""

from __future__ import annotations

import logging
import os
import sys
import threading

# One router; each protocol version has its own listener. 20 kB, rumqttd's default, is smaller than an image; the
# commit log's segments bound the memory (100 MB x 10 by default).
CONFIG = """\
id = 0

[router]
id = 0
max_connections = 1000
max_outgoing_packet_count = 200
max_segment_size = {segment_bytes}
max_segment_count = 2
"""
LISTENER = """
[{version}.edged]
name = "{version}"
listen = "127.0.0.1:{port}"
next_connection_delay_ms = 0
[{version}.edged.connections]
connection_timeout_ms = 60000
max_payload_size = {max_payload_bytes}
max_inflight_count = 200
dynamic_filters = true
"""


def config(port_v3: int, port_v5: int, max_payload_bytes: int) -> str:
    """Return rumqttd's TOML for two loopback listeners, MQTT 3.1.1 and MQTT 5."""
    head = CONFIG.format(segment_bytes=max(4 * 1024 * 1024, max_payload_bytes // 2))
    ports = (("v4", port_v3), ("v5", port_v5))
    return head + "".join(
        LISTENER.format(version=version, port=port, max_payload_bytes=max_payload_bytes) for version, port in ports
    )


def main(config_path: str) -> None:
    """Run the broker until the process ends."""
    from iotcore.iotcore import IotCoreBroker  # noqa: PLC0415 (14 MB; the parent imports this module for `config`)

    logging.basicConfig(level=logging.WARNING)
    # rumqttd traces each packet at level ERROR.
    logging.getLogger("rumqttd").setLevel(logging.CRITICAL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    IotCoreBroker(config_path=config_path).run_forever()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
