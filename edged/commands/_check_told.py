"""The facts of `edged check` for a person: a table for the device, each model, each stream and the local producers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from edged.commands import _text
from edged.shown import listed, plain_lines, size, table

Facts = dict[str, Any]


def readable(facts: Facts) -> str:
    """Return the tables; no control characters."""
    broker = facts["broker"]
    parts = [f"device {facts['device']}, {broker['url']} as {broker['client_id']}\n" + table(_device_rows(facts))]
    parts += [f"\nmodel {model['name']}\n" + table(_model_rows(model)) for model in facts["models"]]
    parts += [f"\nstream {stream['name']}\n" + table(_stream_rows(stream)) for stream in facts["streams"]]
    if facts["outbox"] is not None:
        parts.append("\noutbox\n" + table(_outbox_rows(facts)))
    if facts["local"] is not None:
        parts.append("\nlocal producers\n" + table(_local_rows(facts["local"])))
    return plain_lines("".join(parts)) + "\n"


def _device_rows(facts: Facts) -> Iterator[list[str]]:
    yield ["broker", _broker(facts["broker"])]
    yield ["metrics", _metrics(facts["metrics"])]
    replies, clients, status = facts["replies"], facts["clients"], facts["status"]
    kept = replies["memory_bytes"] and replies["memory_s"]
    kept_for = f"{size(replies['memory_bytes'])} for {replies['memory_s']:g} s, which answer repeated requests"
    yield ["replies", kept_for if kept else "none are kept"]
    most = clients["max_requests"]
    asked = "any number of" if most is None else f"at most {most}"
    yield ["clients", f"{asked} unanswered requests each, {size(clients['max_payload_bytes'])} a payload"]
    yield ["updates", _updates(facts["updates"])]
    network = facts["network"]
    yield ["network", f"cpus {_cpus(network)}, realtime {_priority(network)}; memory lock {facts['memory_lock']}"]
    chosen = facts["selection"]
    yield ["selection", f"{chosen['candidate_s']:g} s a candidate, {chosen['total_s']:g} s a model"]
    stuck = f"after {status['stuck_factor']:g} times P99, at least {status['stuck_floor_ms']} ms"
    yield ["stuck", f"{stuck}; {facts['drain_timeout_s']:g} s to finish at the end"]
    yield ["state", f"in {facts['state_dir']}; log level {facts['log_level']}"]


def _broker(broker: Facts) -> str:
    login = [f"user {broker['username']}"] if broker["username"] else ["no login"]
    login += [f"{name} {broker[name]}" for name in ("ca_file", "cert_file", "password_file") if broker[name]]
    session = f"MQTT {broker['protocol']}, keep-alive {broker['keepalive_s']} s"
    return f"{', '.join(login)}; {session}, session kept {broker['session_expiry_s']} s"


def _metrics(metrics: Facts) -> str:
    every = f"every {metrics['interval_s']:g} s"
    if metrics["address"] is None:
        return f"{every}, not for Prometheus"
    host, port = metrics["address"]
    return f"{every}; for Prometheus at {f'[{host}]' if ':' in host else host}:{port}/metrics"


def _updates(updates: Facts) -> str:
    if not updates["accept"]:
        return "not accepted"
    return f"accepted, bundles of at most {size(updates['max_bytes'])}, {updates['timeout_s']:g} s to fetch one"


def _cpus(part: Facts) -> str:
    return ", ".join(map(str, part["cpus"])) or "any"


def _priority(part: Facts) -> str:
    """Return what is asked for, and what this user would get where that is something else."""
    asked, got = part["realtime"], part["scheduling"]
    return asked if got == asked else f"{asked} (here: {got})"


def _model_rows(model: Facts) -> Iterator[list[str]]:
    yield ["bundle", model["bundle"]]
    content = model["content"]
    if content is not None:
        what = f"{content['name']} version {content['version']}, sha256 of its model {content['model_sha256'][:12]}"
        yield ["", f"{what}, quantize {content['quantize']}"]
        yield from (_text.tensor_row("input", tensor) for tensor in content["inputs"])
        yield from (_text.tensor_row("output", tensor) for tensor in content["outputs"])
    asked = model["delegates"]
    yield ["runtime", model["runtime"]]
    yield ["delegates", asked if isinstance(asked, str) else listed(map(_asked, asked))]
    threads = f"{model['threads']} thread(s), cpus {_cpus(model)}"
    yield ["thread", f"{threads}, realtime {_priority(model)}, priority {model['priority']}"]
    queue = model["queue"]
    room = f"{queue['max_requests']} requests, {size(queue['max_bytes'])}, then {queue['overflow']}"
    yield ["queue", f"{room}; deadline {model['deadline_ms']} ms"]
    yield from _way_rows(model)


def _way_rows(model: Facts) -> Iterator[list[str]]:
    """Rows of what not every model has."""
    batch, state, failover = model["batch"], model["state"], model["failover"]
    if batch is not None:
        waits = f"waits {batch['batch_timeout_micros']} µs for more"
        yield ["batch", f"at most {batch['max_batch_size']} requests an inference, {waits}"]
    if state is not None:
        yield ["state", f"at most {state['max_keys']} keys at once, {state['ahead']} made ahead"]
    warm = f", and when idle for {model['keep_warm_ms']} ms" if model["keep_warm_ms"] else ""
    yield ["warm-up", f"{model['warmup']} inferences{warm}"]
    if failover is None:
        return
    hangs = f"hangs after {failover['hang_factor']:g} times P99, at least {failover['hang_floor_ms']} ms"
    again = f"{failover['probes']} good probes, the first after {failover['backoff_s']:g} s"
    yield ["failover", f"a delegate {hangs}; back after {again}; checked every {failover['recheck_s']:g} s"]


def _asked(delegate: Any) -> str:
    return delegate if isinstance(delegate, str) else json.dumps(delegate)


def _stream_rows(stream: Facts) -> Iterator[list[str]]:
    window = stream["window"]
    yield ["topic", f"{stream['topic']} → {stream['output_topic']}, QoS {stream['qos']}"]
    yield ["samples", f"{stream['decode']}: {', '.join(stream['fields'])}{_order(stream)}"]
    yield ["window", f"{window['length']} samples, every {window['hop']}; at most {stream['max_keys']} keys"]
    limit = "" if stream["deadline_ms"] is None else f", within {stream['deadline_ms']} ms"
    stored = ", stored while there is no broker" if stream["store"] else ""
    yield ["model", f"{stream['model']}, answers as {stream['reply']}{limit}{stored}"]


def _order(stream: Facts) -> str:
    """Return what tells one sample's place among the others."""
    gap = "" if stream["max_gap_s"] is None else f", a gap above {stream['max_gap_s']:g} s begins anew"
    named = ", ".join(f"{name} {stream[name]}" for name in ("seq", "time") if stream[name])
    return f"; {named}{gap}" if named else ""


def _outbox_rows(facts: Facts) -> Iterator[list[str]]:
    outbox = facts["outbox"]
    yield ["streams", listed(stream["name"] for stream in facts["streams"] if stream["store"])]
    yield ["kept", f"at most {size(outbox['max_bytes'])} for {outbox['max_age_s']:g} s, in {facts['state_dir']}/outbox"]


def _local_rows(local: Facts) -> Iterator[list[str]]:
    yield ["socket", local["socket"] + (f", for the group {local['group']} too" if local["group"] else "")]
    room = f"{local['slots']} slots of {size(local['slot_bytes'])}"
    yield ["memory", f"{room} each, {size(local['slots'] * local['slot_bytes'])}; at most {local['max_producers']}"]
