"""`edged doctor`: what of this machine can serve, why the rest cannot, and the step that would mend each."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from delegates import registry
from delegates.base import Probe
from delegates.external import UNMEASURED
from edged import config as configuration
from edged import probing
from edged.commands import _box
from edged.commands.progress import Progress
from edged.config import Config, ModelConfig, default_state_dir
from edged.engines import tflite_runtime, tflite_smoke
from edged.engines.tflite_smoke import Health
from edged.errors import ExitCode
from edged.probing import Wanted
from edged.shown import plain_lines, table

HELP = "say what of this machine can serve, and how to mend what cannot"
EPILOG = """examples:
  edged doctor
  edged doctor -c edged.yaml
  edged doctor --json
exit codes:
  0 a TFLite runtime works and, with -c, every model has something that can serve it; 69 not so"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "-c", "--config", type=Path, metavar="FILE", help="look for what this configuration's models want"
    )
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")


def run(args: argparse.Namespace) -> int:
    """Look and print. Raises ConfigError when the configuration is wrong."""
    config = configuration.load(args.config) if args.config else None
    progress = Progress(sys.stderr)
    try:
        facts = _facts(config, progress)
    finally:
        progress.done()
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if args.json else _readable(facts))
    return ExitCode.OK if facts["ok"] else ExitCode.UNAVAILABLE


def _facts(config: Config | None, progress: Progress) -> dict[str, Any]:
    health = []
    for runtime in tflite_runtime.RUNTIMES:
        progress.show(f"trying {runtime.name}")
        health.append(tflite_smoke.health(runtime))
    progress.show("looking for delegates")
    wanted = probing.everything()
    probes = probing.probe_each(wanted)
    models = [_model(model, health, progress) for model in (config.models if config else ())]
    working = any(one.works for one in health)
    return {
        "ok": working and all(model["ok"] for model in models),
        "runtimes": [asdict(one) for one in health],
        "delegates": [_delegate(item, one, health) for item, one in zip(wanted, probes, strict=True)],
        "models": models,
        "box": _box.facts(config.state_dir if config else default_state_dir()),
    }


def _model(model: ModelConfig, health: Sequence[Health], progress: Progress) -> dict[str, Any]:
    """What the model asks for, each with its own options and its own answer."""
    progress.show(f"looking for what {model.name} wants")
    wanted = probing.everything() if model.wanted is None else model.wanted
    allowed = [one for one in health if model.runtime in ("auto", one.name)]
    found = [_delegate(*pair, allowed) for pair in zip(wanted, probing.probe_each(wanted), strict=True)]
    ok = any(one["available"] for one in found)
    # Of what was not asked for by name nobody needs to hear why it is not here.
    shown = [one for one in found if one["available"] or model.wanted is not None]
    return {"name": model.name, "runtime": model.runtime, "ok": ok, "delegates": shown}


def _delegate(item: Wanted, found: Probe, health: Sequence[Health]) -> dict[str, Any]:
    """The facts of one delegate; it is not available either where no runtime that can bring it in works."""
    note, runtimes = _nature(item, found)
    facts = {"delegate": item[0], "name": probing.told(*item), **asdict(found), "runtimes": runtimes, "note": note}
    usable = [one for one in health if one.name in runtimes]
    # Without a runtime that may bring it in, its library would be of no use.
    if not found.available and (usable or not runtimes):
        return facts
    if any(one.works for one in usable):
        return facts
    first = usable[0] if usable else None
    fix = first.fix if first else f"`runtime: auto`, or one of {', '.join(runtimes)}"
    reason = f"it needs {' or '.join(runtimes)}, " + ("and none works" if usable else "which `runtime:` does not allow")
    return {**facts, "available": False, "reason": reason, "fix": fix}


def _nature(item: Wanted, found: Probe) -> tuple[str, list[str]]:
    if not found.available and registry.foreign(item[0]):  # what ends the process that imports it must not end this one
        return "", []
    try:
        delegate = registry.create(*item)
    except (KeyError, ValueError):  # its probe says why
        return "", []
    return delegate.note, sorted(delegate.runtimes)


def _readable(facts: Mapping[str, Any]) -> str:
    parts = ["runtimes\n", table(_runtime_row(one) for one in facts["runtimes"])]
    parts += ["\ndelegates\n", table(row for one in facts["delegates"] for row in _delegate_rows(one))]
    parts += [_unmeasured(facts["delegates"])]
    for model in facts["models"]:
        verdict = "" if model["ok"] else ": nothing of what it asks for is here"
        parts += [f"\nmodel {model['name']}{verdict}\n"]
        parts += [table(row for one in model["delegates"] for row in _delegate_rows(one))]
    parts += ["\nthis machine\n", table(_box.rows(facts["box"]))]
    return plain_lines("".join(parts))


def _unmeasured(delegates: Sequence[Mapping[str, Any]]) -> str:
    names = [one["name"] for one in delegates if one["note"].startswith(UNMEASURED)]
    return f"  ({', '.join(names)}: {UNMEASURED})\n" if names else ""


def _runtime_row(one: Mapping[str, Any]) -> list[str]:
    name = f"{one['name']} {one['version']}".rstrip()
    return [name, "works" if one["works"] else _mend(one)]


def _delegate_rows(one: Mapping[str, Any]) -> Iterator[list[str]]:
    if not one["available"]:
        yield [one["name"], "no", _mend(one)]
        return
    told = [one["library"], f"version {one['version']}" * bool(one["version"]), one["device"], one["note"]]
    yield [one["name"], "yes", ", ".join(filter(None, told))]


def _mend(one: Mapping[str, Any]) -> str:
    return f"{one['reason']}; fix: {one['fix']}" if one["fix"] else str(one["reason"])
