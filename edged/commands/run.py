"""`edged run`: the daemon in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from edged import config as configuration
from edged.config import Config
from edged.errors import ExitCode
from edged.transports.base import Transport

HELP = "serve models on this device over MQTT"
EPILOG = """examples:
  edged run -c /etc/edged/edged.yaml
  edged check -c edged.yaml && edged run -c edged.yaml
signals:
  SIGTERM, SIGINT  answer what was admitted, publish `stopped`, exit
  SIGHUP           read the configuration again and log what changed"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="configuration (YAML)")


def run(args: argparse.Namespace) -> int:
    """Run until told to stop. Raises an EdgedError when the configuration or a bundle is wrong."""
    config = configuration.load(args.config)
    logging.getLogger().setLevel((args.log_level or config.log_level).upper())
    from edged.daemon import Daemon  # noqa: PLC0415  # numpy and the rest, once the configuration is known to be right

    daemon = Daemon(config, _transport(config), args.config)
    signal.signal(signal.SIGTERM, lambda *_: daemon.request_stop())
    signal.signal(signal.SIGINT, lambda *_: daemon.request_stop())
    signal.signal(signal.SIGHUP, lambda *_: daemon.request_reload())
    ended = daemon.run()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # The interpreter puts the default action back while it ends; a second SIGTERM then would turn 0 into a kill.
        signal.signal(number, signal.SIG_IGN)
    if ended:
        return ExitCode.OK
    # An invoke still hangs in native code: an ordinary exit would wait for its thread for ever.
    logging.getLogger(__name__).error("an inference did not return; leaving without it")
    logging.shutdown()
    sys.stdout.flush()
    os._exit(ExitCode.INTERNAL)


def _transport(config: Config) -> Transport:
    from edged.transports.mqtt import MqttSettings, MqttTransport  # noqa: PLC0415  # paho, only for the daemon itself

    broker, address = config.broker, config.broker.address
    settings = MqttSettings(
        host=address.host,
        port=address.port,
        client_id=config.client_id,
        protocol=broker.protocol,
        keepalive_s=broker.keepalive_s,
        session_expiry_s=broker.session_expiry_s,
        username=broker.username,
        password=broker.password(),
        tls=address.tls,
        ca_file=broker.ca_file,
        cert_file=broker.cert_file,
        key_file=broker.key_file,
        resume=True,
    )
    return MqttTransport(settings)
