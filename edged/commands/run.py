"""`edged run`: the daemon in the foreground, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import signal
import sys
from pathlib import Path

from edged import config as configuration
from edged.config import Config
from edged.errors import ExitCode
from edged.session import may_resume
from edged.transports import open_transport
from edged.transports.base import Transport

HELP = "serve models on this device over MQTT"
LOG_LEVEL = "info"
EPILOG = """examples:
  edged run -c /etc/edged/edged.yaml
  edged check -c edged.yaml && edged run -c edged.yaml
signals:
  SIGTERM, SIGINT  answer what was admitted, publish `stopped`, exit
  SIGHUP           read the configuration again and log what changed
exit codes:
  0 stopped in order, 65 a bundle is bad, 69 a runtime is not installed or an address in use, 70 an inference did not
  return, 78 the configuration is wrong"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="configuration (YAML)")


def run(args: argparse.Namespace) -> int:
    """Run until told to stop. Raises an EdgedError when the configuration or a bundle is wrong."""
    # A hang-up that comes before there is a daemon to read again must not end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    config = _load(args)
    logging.getLogger().setLevel(config.log_level.upper())
    from edged.daemon import Daemon, own_filters  # noqa: PLC0415  # numpy and the rest, for a right configuration only

    filters = [*own_filters(config), *(stream.topic for stream in config.streams)]
    daemon = Daemon(
        config, _transport(config, resume=may_resume(config.state_dir, config.client_id, filters)), lambda: _load(args)
    )
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


def _load(args: argparse.Namespace) -> Config:
    """Read the configuration; what the command line says goes before it, at the start and at each reload."""
    config = configuration.load(args.config)
    return dataclasses.replace(config, log_level=args.log_level) if args.log_level else config


def _transport(config: Config, *, resume: bool) -> Transport:
    broker = config.broker
    return open_transport(
        broker.url,
        client_id=config.client_id,
        protocol=broker.protocol,
        keepalive_s=broker.keepalive_s,
        session_expiry_s=broker.session_expiry_s,
        username=broker.username,
        password=broker.password(),
        password_file=broker.password_file,
        ca_file=broker.ca_file,
        cert_file=broker.cert_file,
        key_file=broker.key_file,
        resume=resume,
    )
