"""`edged check`: all that can be told of a configuration before anything runs.

What `edged run` refuses is refused here by the same function, so with the same line and exit code. Nothing is opened
that a running daemon or its clients would notice.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from edged import assembly, bundle, codecs
from edged import config as configuration
from edged.bundle import Bundle
from edged.commands import _check_facts, _check_notes, _check_threads, _check_told
from edged.config import BrokerConfig, Config, LocalConfig, MetricsConfig, ModelConfig, StreamConfig
from edged.engines import tflite_manifest
from edged.engines.tflite_flatbuffer import TooLargeError
from edged.errors import BadDataError, ConfigError, EdgedError, ExitCode, RequestError
from edged.fitting import Fit, fit
from edged.shown import clipped, listed, plain
from edged.streams import Stream
from edged.yamlload import InvalidConfigError

T = TypeVar("T")

HELP = "check a configuration and its bundles, and say what would run"
EPILOG = """examples:
  edged check -c edged.yaml
  edged check -c edged.yaml --json
What `edged run` would refuse is an error; a warning is what it would run with all the same; a note names a setting
that has no effect. Addresses, memory, CPUs and permissions are those of this machine and this user.
exit codes:
  0 all right, 65 a bundle or a certificate is bad, 69 a runtime is not installed or an address is not of this machine,
  78 the configuration is wrong"""


@dataclass
class Findings:
    """What is wrong (each with the exit code it asks for), what is only strange here, and what has no effect."""

    errors: list[EdgedError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, action: Callable[[], T]) -> T | None:
        """Return what `action` returns; None after noting why it could not."""
        try:
            return action()
        except EdgedError as exc:
            self.errors.append(exc)
        except OSError as exc:
            self.errors.append(BadDataError(str(exc.filename), exc.strerror or str(exc)))
        return None

    def wrong(self, where: str, what: str, hint: str = "") -> None:
        """Note a problem of the configuration."""
        self.errors.append(ConfigError(where, what, hint))

    @property
    def exit_code(self) -> ExitCode:
        """The gravest: a wrong configuration before a missing runtime before a bad bundle."""
        return max((error.exit_code for error in self.errors), default=ExitCode.OK)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="configuration (YAML)")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Check; prints what would run to standard output, and every problem to standard error."""
    findings = Findings()
    config = findings.attempt(lambda: configuration.load(args.config))
    facts = {"config": str(args.config), **(_facts(config, findings) if config else {})}
    if args.json:
        sys.stdout.write(json.dumps(facts | _verdict(findings), indent=2) + "\n")
    elif config:
        sys.stdout.write(_check_told.readable(facts))
    sys.stdout.flush()
    _complain(findings)
    if not findings.errors and not args.json:
        sys.stdout.write("ok\n")
    return findings.exit_code


def _facts(config: Config, findings: Findings) -> dict[str, Any]:
    bundles = {m.name: findings.attempt(partial(bundle.read, m.bundle)) for m in config.models}
    for loaded in filter(None, bundles.values()):
        _check_bundle(loaded, findings)
    _check_box(config, findings)
    ways: dict[str, Fit | None] = {}
    for model in config.models:
        ways[model.name] = _check_model(model, bundles[model.name], findings)
    for stream in config.streams:
        _check_stream(stream, config, ways[stream.model], findings)
    threads = _check_threads.tried(config)
    findings.warnings += _check_threads.warnings(threads)
    findings.notes += _check_notes.notes(config, bundles, ways, threads)
    return _check_facts.facts(config, bundles, ways, threads)


def _check_bundle(loaded: Bundle, findings: Findings) -> None:
    """What a daemon, or its first start with the bundle, would stumble over."""
    where = str(loaded.path)
    findings.attempt(loaded.golden)
    try:
        wrong = tflite_manifest.of_bundle(loaded)
        findings.errors += [BadDataError(where, what) for what in wrong]
    except TooLargeError as exc:
        findings.warnings.append(f"{where}: {bundle.MODEL} {exc}")
    if loaded.unlisted:
        names = listed(map(clipped, loaded.unlisted))
        findings.warnings.append(f"{where}: {names} stands beside {bundle.MANIFEST} and not in it: it is not used")


def _check_box(config: Config, findings: Findings) -> None:
    """What belongs to the device as a whole."""
    _check_login(config.broker, findings)
    _check_endpoint(config.metrics, findings)
    if config.local is not None:
        _check_local(config.local, findings)
    there = next(path for path in (config.state_dir, *config.state_dir.parents) if os.access(path, os.F_OK))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        findings.warnings.append(
            f"state_dir: {config.state_dir} cannot be written: nothing is kept until the next start"
        )


def _check_login(broker: BrokerConfig, findings: Findings) -> None:
    findings.attempt(broker.password)
    if broker.address.tls:
        from edged.transports import mqtt_login  # noqa: PLC0415  # with ssl, for those who have TLS

        findings.attempt(partial(mqtt_login.context, broker.ca_file, broker.cert_file, broker.key_file))


def _check_endpoint(metrics: MetricsConfig, findings: Findings) -> None:
    if metrics.address is None:
        return
    from edged.prometheus import endpoint  # noqa: PLC0415  # only where it is asked for

    host, port = metrics.address
    if findings.attempt(partial(endpoint.is_free, host, port)) is False:
        findings.warnings.append(
            f"metrics.prometheus: {host}:{port} is in use, by a daemon that runs or another program"
        )


def _check_local(local: LocalConfig, findings: Findings) -> None:
    from edged.transports import shm_memory, shm_socket  # noqa: PLC0415  # only where there are local producers
    from edged.transports.shm_wire import Hello  # noqa: PLC0415  # as above

    findings.attempt(shm_memory.refuse_unsupported)
    findings.attempt(partial(shm_socket.require, local.socket, local.group))
    findings.attempt(partial(shm_memory.refuse_too_much, Hello(local.slots, local.slot_bytes), local.max_producers))


def _check_model(model: ModelConfig, loaded: Bundle | None, findings: Findings) -> Fit | None:
    """Return how the bundle would be served; None where it cannot be."""
    way = None if loaded is None else findings.attempt(partial(fit, model, loaded))
    findings.attempt(lambda: assembly.runtimes(model))
    needed = sum(spec.wire_bytes for spec in way.signature.inputs) if way else 0
    if needed > model.queue.max_bytes:
        what = f"{model.queue.max_bytes} bytes cannot hold one request of {needed} bytes"
        findings.wrong(f"models.{model.name}.queue.max_bytes", what)
    return way


def _check_stream(stream: StreamConfig, config: Config, way: Fit | None, findings: Findings) -> None:
    where = f"streams.{stream.name}"
    if stream.key_level is None and ("+" in stream.topic or "#" in stream.topic):
        findings.warnings.append(f"{where}.key_level: not given, so all sensors under {stream.topic} share one window")
    try:
        codecs.load(stream.reply)
        if way is not None:
            # The stream's own rules, exactly as the daemon applies them; nothing is sent by constructing one.
            Stream(stream, way.signature, config.device, lambda _: None, lambda *_: False, 1)
    except ValueError as exc:
        findings.wrong(where, str(exc))
    except RequestError as exc:
        findings.wrong(f"{where}.reply", exc.message)


def _verdict(findings: Findings) -> dict[str, Any]:
    problems: list[dict[str, Any]] = []
    for error in findings.errors:
        if isinstance(error, InvalidConfigError):
            problems += [{"where": p.problem.path, "what": p.problem.message, "line": p.line} for p in error.problems]
        else:
            problems.append({"where": error.where, "what": error.what, "hint": error.hint})
    return {"ok": not problems, "problems": problems, "warnings": findings.warnings, "notes": findings.notes}


def _complain(findings: Findings) -> None:
    errors = (line for error in findings.errors for line in str(error).splitlines())
    warnings = (f"warning: {warning}" for warning in findings.warnings)
    notes = (f"note: {note}" for note in findings.notes)
    for line in (*errors, *warnings, *notes):
        sys.stderr.write(f"edged: {plain(line)}\n")
