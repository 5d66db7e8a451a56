"""`edged check`: all that can be told of a configuration before anything runs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from edged import assembly, brokerurl, bundle, codecs, topics
from edged import config as configuration
from edged.bundle import Bundle
from edged.commands import _text
from edged.config import Config, LocalConfig, ModelConfig, StreamConfig
from edged.engines import tflite_manifest
from edged.engines.tflite_flatbuffer import TooLargeError
from edged.errors import BadDataError, ConfigError, EdgedError, ExitCode, RequestError
from edged.fitting import Fit, fit
from edged.shown import clipped, listed, plain, plain_lines, size, table
from edged.streams import Stream
from edged.yamlload import InvalidConfigError

T = TypeVar("T")

HELP = "check a configuration and its bundles, and say what would run"
EPILOG = """examples:
  edged check -c edged.yaml
  edged check -c edged.yaml --json
exit codes:
  0 all right, 65 a bundle is bad, 69 a runtime is not installed, 78 the configuration is wrong"""


@dataclass
class Findings:
    """What is wrong (each with the exit code it asks for), and what is only strange on this machine."""

    errors: list[EdgedError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

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
        sys.stdout.write(_readable(facts))
    sys.stdout.flush()
    _complain(findings)
    if not findings.errors and not args.json:
        sys.stdout.write("ok\n")
    return findings.exit_code


def _facts(config: Config, findings: Findings) -> dict[str, Any]:
    bundles = {m.name: findings.attempt(partial(bundle.read, m.bundle)) for m in config.models}
    for loaded in filter(None, bundles.values()):
        _check_bundle(loaded, findings)
    _check_files(config, findings)
    if config.local is not None:
        _check_local(config.local, findings)
    ways: dict[str, Fit | None] = {}
    for model in config.models:
        ways[model.name] = _check_model(model, bundles[model.name], findings)
    for stream in config.streams:
        _check_stream(stream, config, ways[stream.model], findings)
    broker = {"url": config.broker.url, "client_id": config.client_id, "protocol": config.broker.protocol}
    return {
        "device": config.device,
        "broker": broker,
        "models": [_model_facts(model, bundles[model.name], ways[model.name]) for model in config.models],
        "streams": [_stream_facts(stream, config) for stream in config.streams],
        "local": None if config.local is None else {**vars(config.local), "socket": str(config.local.socket)},
    }


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


def _check_files(config: Config, findings: Findings) -> None:
    for name in brokerurl.TLS_FILES:
        path = getattr(config.broker, name)
        if path is not None and not os.access(path, os.R_OK):
            findings.wrong(f"broker.{name}", f"{path} is not there or cannot be read")
    findings.attempt(config.broker.password)


def _check_local(local: LocalConfig, findings: Findings) -> None:
    from edged.transports import shm_memory, shm_socket  # noqa: PLC0415  # only where there are local producers

    findings.attempt(shm_memory.refuse_unsupported)
    if wrong := shm_socket.problem(local.socket, local.group):
        findings.wrong("local", wrong)
    if not local.socket.parent.is_dir():
        findings.warnings.append(f"local.socket: there is no directory {local.socket.parent}")


def _check_model(model: ModelConfig, loaded: Bundle | None, findings: Findings) -> Fit | None:
    """Return how the bundle would be served; None where it cannot be."""
    way = None if loaded is None else findings.attempt(partial(fit, model, loaded))
    findings.attempt(lambda: assembly.runtimes(model))
    here = os.cpu_count() or 1
    missing = [cpu for cpu in model.cpus if cpu >= here]
    if missing:
        findings.warnings.append(f"models.{model.name}.cpus: CPU {missing[0]} is not on this machine (it has {here})")
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


def _model_facts(model: ModelConfig, loaded: Bundle | None, way: Fit | None) -> dict[str, Any]:
    return {
        "name": model.name,
        "bundle": str(model.bundle),
        "content": None if loaded is None else _bundle_facts(loaded, way),
        "runtime": model.runtime,
        "delegates": "auto" if model.wanted is None else [_delegate(*one) for one in model.wanted],
        "threads": model.threads,
        "cpus": list(model.cpus),
        "realtime": model.realtime,
        "deadline_ms": model.deadline_ms,
        "warmup": model.warmup,
        "queue": vars(model.queue),
    }


def _bundle_facts(loaded: Bundle, way: Fit | None) -> dict[str, Any]:
    manifest = loaded.manifest
    wire = loaded.signature if way is None else way.signature  # what a requester sends and gets
    return {
        "name": manifest.name,
        "version": manifest.version,
        "model_sha256": loaded.model_sha256,
        "quantize": manifest.quantize,
        "inputs": [_text.tensor_facts(spec) for spec in wire.inputs],
        "outputs": [_text.tensor_facts(spec) for spec in wire.outputs],
    }


def _stream_facts(stream: StreamConfig, config: Config) -> dict[str, Any]:
    key = [] if stream.key_level is None else ["<key>"]
    return {
        "name": stream.name,
        "topic": stream.topic,
        "output_topic": topics.device(config.device, "out", stream.name, *key),
        "model": stream.model,
        "decode": stream.decode,
        "reply": stream.reply,
        "window": vars(stream.window),
        "fields": list(stream.fields),
    }


def _verdict(findings: Findings) -> dict[str, Any]:
    problems: list[dict[str, Any]] = []
    for error in findings.errors:
        if isinstance(error, InvalidConfigError):
            problems += [{"where": p.problem.path, "what": p.problem.message, "line": p.line} for p in error.problems]
        else:
            problems.append({"where": error.where, "what": error.what, "hint": error.hint})
    return {"ok": not problems, "problems": problems, "warnings": findings.warnings}


def _complain(findings: Findings) -> None:
    for error in findings.errors:
        for line in str(error).splitlines():
            sys.stderr.write(f"edged: {plain(line)}\n")
    for warning in findings.warnings:
        sys.stderr.write(f"edged: warning: {plain(warning)}\n")


def _readable(facts: dict[str, Any]) -> str:
    broker = facts["broker"]
    parts = [f"device {facts['device']}, {broker['url']} as {broker['client_id']}\n"]
    parts += [f"\nmodel {model['name']}\n" + table(_model_rows(model)) for model in facts["models"]]
    parts += [f"\nstream {stream['name']}\n" + table(_stream_rows(stream)) for stream in facts["streams"]]
    if facts["local"] is not None:
        parts.append("\nlocal producers\n" + table(_local_rows(facts["local"])))
    return plain_lines("".join(parts)) + "\n"


def _model_rows(model: dict[str, Any]) -> Iterator[list[str]]:
    yield ["bundle", model["bundle"]]
    content = model["content"]
    if content is not None:
        what = f"{content['name']} version {content['version']}, sha256 {content['model_sha256'][:12]}"
        yield ["", f"{what}, quantize {content['quantize']}"]
        yield from (_text.tensor_row("input", tensor) for tensor in content["inputs"])
        yield from (_text.tensor_row("output", tensor) for tensor in content["outputs"])
    asked = model["delegates"]
    yield ["runtime", model["runtime"]]
    yield ["delegates", asked if isinstance(asked, str) else listed(map(_asked, asked))]
    cpus = ", ".join(map(str, model["cpus"])) or "any"
    yield ["thread", f"{model['threads']} thread(s), cpus {cpus}, realtime {model['realtime']}"]
    queue = model["queue"]
    room = f"{queue['max_requests']} requests, {size(queue['max_bytes'])}, then {queue['overflow']}"
    yield ["queue", f"{room}; deadline {model['deadline_ms']} ms"]


def _local_rows(local: dict[str, Any]) -> Iterator[list[str]]:
    yield ["socket", local["socket"] + (f", for the group {local['group']} too" if local["group"] else "")]
    room = f"{local['slots']} slots of {size(local['slot_bytes'])}"
    yield ["memory", f"{room} each, {size(local['slots'] * local['slot_bytes'])}; at most {local['max_producers']}"]


def _delegate(name: str, options: Mapping[str, Any]) -> str | dict[str, Any]:
    """Return it as a configuration has it."""
    return {name: dict(options)} if options else name


def _asked(delegate: Any) -> str:
    return delegate if isinstance(delegate, str) else json.dumps(delegate)


def _stream_rows(stream: dict[str, Any]) -> Iterator[list[str]]:
    window = stream["window"]
    yield ["topic", f"{stream['topic']} → {stream['output_topic']}"]
    yield ["samples", f"{stream['decode']}: {', '.join(stream['fields'])}"]
    yield ["window", f"{window['length']} samples, every {window['hop']}"]
    yield ["model", f"{stream['model']}, answers as {stream['reply']}"]
