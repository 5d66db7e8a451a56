"""`edged delegates`: every candidate of every model, measured as it would serve; which one serves, and why."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from delegates.select import Measured
from edged import assembly, probing
from edged import config as configuration
from edged.bundle import Bundle
from edged.checks import hint
from edged.commands.progress import Progress
from edged.config import Config, ModelConfig
from edged.engines.candidate import Candidate
from edged.errors import ExitCode, UsageError
from edged.latency import FEW
from edged.selection import NothingAgreesError, Selection, Selector, served
from edged.shown import plain_lines, size, table

HELP = "measure the delegates of every model, and say which serves and why"
EPILOG = """examples:
  edged delegates -c edged.yaml
  edged delegates -c edged.yaml --model har --remeasure
  edged delegates -c edged.yaml --json | jq '.models[].chosen'
exit codes:
  0 every model has something that serves it, 69 not so; with --strict also 69 when a delegate that is asked for by
  name cannot serve"""

_HEADER = ["", "candidate", "verdict", "nodes", "error", "P50 µs", "P99 µs", "open ms", "first ms", "RSS"]
_LEGEND = """\
* serves, + stands in for it when it fails. nodes: how many of the model's the delegate takes (of cpu: how many XNNPACK
takes). error: the largest one, as a share of its tolerance, against the CPU's reference answers. open: load and
compilation; first: the first inference.
"""
_FEW = f"~ of fewer than {FEW} inferences.\n"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="configuration (YAML)")
    parser.add_argument("--model", metavar="NAME", help="this model alone")
    parser.add_argument("--remeasure", action="store_true", help="measure again what is known, and try suspects again")
    parser.add_argument("--strict", action="store_true", help="a delegate that is named and cannot serve is a failure")
    parser.add_argument("--json", action="store_true", help="print the facts as JSON")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line on standard error for each candidate")


def run(args: argparse.Namespace) -> int:
    """Measure what is not known, and print. Raises an EdgedError for a wrong configuration or bundle."""
    _end_in_order()
    config = _only(configuration.load(args.config), args.model)
    bundles = assembly.read_bundles(config)
    facts = _facts(config, bundles, args)
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if args.json else _readable(facts))
    good = all(model["chosen"] and not (args.strict and model["missed"]) for model in facts["models"])
    return ExitCode.OK if good else ExitCode.UNAVAILABLE


def _end_in_order() -> None:
    """Let each signal end this as Ctrl-C does: what is just being opened must not look as if it had ended us."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, of the terminal that goes away
            signal.signal(number, signal.default_int_handler)


def _only(config: Config, name: str | None) -> Config:
    if name is None:
        return config
    names = [model.name for model in config.models]
    if name not in names:
        raise UsageError("--model", f"no model is called {name!r}{hint(name, names)}")
    return dataclasses.replace(config, models=tuple(m for m in config.models if m.name == name), streams=())


def _facts(config: Config, bundles: Mapping[str, Bundle], args: argparse.Namespace) -> dict[str, Any]:
    selector = Selector(config.state_dir, config.selection.candidate_s, config.selection.total_s)
    progress = Progress(sys.stderr, lines=args.verbose)
    try:
        models = [
            _model(model, bundles[model.name], selector, progress, fresh=args.remeasure) for model in config.models
        ]
    finally:
        progress.done()
    return {
        "config": str(args.config),
        "kept_in": str(selector.file),
        "daemon_runs": served(config.state_dir),
        "models": models,
    }


def _model(
    model: ModelConfig, loaded: Bundle, selector: Selector, progress: Progress, *, fresh: bool
) -> dict[str, Any]:
    wish = assembly.wish(model, loaded)
    facts = {"name": model.name, "bundle": str(model.bundle), "version": loaded.manifest.version}
    try:
        selection = selector.choose(loaded, wish, progress.show, fresh=fresh)
    except NothingAgreesError as exc:
        return facts | {
            "chosen": None,
            "stand_in": None,
            "missed": exc.what,
            "absent": [],
            "candidates": _rows(exc.rows),
        }
    return facts | _selection(selection) | {"absent": _absent(selection) if model.wanted is None else []}


def _absent(selection: Selection) -> list[str]:
    """Return what `auto` looked for and did not find."""
    here = {row.delegate for row in selection.rows}
    return [name for name, options in probing.everything() if probing.told(name, options) not in here]


def _selection(selection: Selection) -> dict[str, Any]:
    stand_in = selection.stand_in
    return {
        "chosen": _candidate(selection.chosen),
        "stand_in": None if stand_in is None else _candidate(stand_in),
        "missed": selection.missed,
        "candidates": _rows(selection.rows),
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    options = json.loads(candidate.options)
    return {"label": candidate.label, **asdict(candidate), "options": options}


def _rows(rows: Sequence[Measured]) -> list[dict[str, Any]]:
    return [{**asdict(row), "options": json.loads(row.options)} for row in rows]


def _readable(facts: Mapping[str, Any]) -> str:
    parts = [part for model in facts["models"] for part in _model_parts(model, facts["kept_in"])]
    rows = [row for model in facts["models"] for row in model["candidates"]]
    parts.append(_LEGEND)
    if any(row["samples"] and row["samples"] < FEW for row in rows):
        parts.append(_FEW)
    if facts["daemon_runs"] and not all(row["kept"] for row in rows):
        parts.append("A daemon runs with this state directory: these figures were taken beside its load.\n")
    return plain_lines("".join(parts))


def _model_parts(model: Mapping[str, Any], kept_in: str) -> Iterator[str]:
    rows = model["candidates"]
    labels = [row["label"] for row in rows]
    yield f"model {model['name']}: {model['bundle']}, version {model['version']}\n"
    yield table([_HEADER, *([_mark(row, model), *_row(row, told=labels.count(row["label"]) > 1)] for row in rows)])
    kept = sum(row["kept"] for row in rows)
    now = len(rows) - kept
    yield from (f"  {row['label']}: {row['reason']}\n" for row in rows if row["reason"])
    if model["missed"]:
        yield f"  NOT AS ASKED FOR: {model['chosen']['label'] if model['chosen'] else 'nothing'} serves\n"
    if model["absent"]:
        yield f"  not here: {', '.join(model['absent'])} (`edged doctor` says why)\n"
    yield f"  measured now: {now}, known from before: {kept}; remembered in {kept_in}\n\n"


def _mark(row: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    if row["verdict"] == "chosen":
        return "*"
    stand_in = model["stand_in"] or {}
    return "+" if (row["label"], row["options"]) == (stand_in.get("label"), stand_in.get("options")) else ""


def _row(row: Mapping[str, Any], *, told: bool) -> list[str]:
    """Return the cells of a candidate; told: with its options, without which it would look like another one."""
    few = "~" if row["samples"] < FEW else ""
    return [
        f"{row['label']} {json.dumps(row['options'])}" if told else row["label"],
        row["verdict"],
        _nodes(row),
        _number(row["worst"], ".2f"),
        _number(row["p50_us"], ".1f"),
        _number(row["p99_us"], ".1f", few),
        _number(row["open_ms"], ".0f"),
        _number(row["first_ms"], ".1f"),
        size(row["rss_bytes"]) if row["rss_bytes"] else "-",
    ]


def _nodes(row: Mapping[str, Any]) -> str:
    if row["nodes_taken"] is None:
        return "-" if row["open_ms"] is None else str(row["mapping"])
    return f"{row['nodes_taken']}/{row['nodes_total']}"


def _number(value: float | None, how: str, mark: str = "") -> str:
    return "-" if value is None else f"{mark}{value:{how}}"
