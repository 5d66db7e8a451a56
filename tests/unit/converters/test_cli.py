"""The command's arguments; nothing heavy is imported to read them."""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest
from support import samplereports

from converters import cli, pipeline, show
from converters.options import Options
from edged.errors import UnavailableError

NEEDED = ["m", "-o", "out", "--name", "n", "--version", "2"]


def parse(*args: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=True)
    cli.configure(parser)
    return parser.parse_args([*NEEDED, *args])


def test_importing_the_command_imports_no_tensorflow() -> None:
    """`edged --help` imports it for one line: neither TensorFlow nor a runtime may come along."""
    code = "import sys, converters.cli, converters.pipeline; print([m for m in sys.modules if m.startswith(%r)])"
    for prefix in ("tensorflow", "ai_edge_litert", "tflite_runtime.", "PIL"):
        root = Path(cli.__file__).parent.parent
        done = subprocess.run(
            [sys.executable, "-c", code % prefix], capture_output=True, text=True, check=True, cwd=root
        )
        assert done.stdout.strip() == "[]"


def test_defaults_and_paths() -> None:
    """Float in and out, one request a batch, eight golden samples; paths become absolute."""
    options = cli.options(parse())
    assert (options.quantize, options.io, options.batch, options.golden) == ("none", "float", 1, 8)
    assert options.model == Path.cwd() / "m"
    assert options.output.is_absolute()


# A value that is not the default, for every option; by the field of Options that it sets.
GIVEN = {
    "quantize": ["--quantize", "mixed"], "calibration": ["--calibration", "c.npz"], "evaluation": ["--eval", "e.npz"],
    "labels": ["--labels", "l.txt"], "signature": ["--signature", "s"], "tags": ["--tags", ","],
    "io": ["--io", "quantized"], "batch": ["--batch", "2"], "shapes": ["--shape", "x=1,2"],
    "preprocess": ["--preprocess", "p.yaml"], "postprocess": ["--postprocess", "q.yaml"],
    "min_agreement": ["--min-agreement", "0.9"], "max_error": ["--max-error", "2"],
    "max_accuracy_loss": ["--max-accuracy-loss", "0.02"], "max_mae_growth": ["--max-mae-growth", "0.1"],
    "threshold": ["--threshold", "0.3"], "targets": ["--target", "edgetpu"], "dynamic_batch": ["--dynamic-batch"],
    "allow_flex": ["--allow-flex"], "allow_custom": ["--allow-custom", "A", "--allow-custom", "B"],
    "search_budget": ["--search-budget", "9"], "time_limit_s": ["--time-limit", "1.5"],
    "memory_limit": ["--memory-limit", "8GB"], "report": ["--report", "r.html"], "golden": ["--golden", "3"],
    "force": ["--force"], "verbose": ["--verbose"],
}  # fmt: skip


def test_defaults_are_those_of_the_options() -> None:
    """They are written down once: what the parser takes where nothing is given is what Options takes."""
    assert cli.options(parse()) == Options(Path.cwd() / "m", Path.cwd() / "out", "n", 2)


def test_every_option_can_be_given() -> None:
    """A field that the command line cannot set is a promise nobody can use; each flag sets its own and no other."""
    before = cli.options(parse())
    optional = {f.name for f in dataclasses.fields(Options)} - {"model", "output", "name", "version"}
    assert set(GIVEN) == optional
    for name, words in GIVEN.items():
        changed = {f for f in optional if getattr(cli.options(parse(*words)), f) != getattr(before, f)}
        assert changed == {name}
    assert cli.options(parse(*GIVEN["allow_custom"])).allow_custom == ("A", "B")
    assert cli.options(parse(*GIVEN["memory_limit"])).memory_limit == 8 * 10**9


def test_the_help_tells_the_defaults_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Every number of the help is the field's own."""
    with pytest.raises(SystemExit):
        parse("--help")
    told = " ".join(capsys.readouterr().out.split()).partition("the bundle:")[2]
    for name in (
        "quantize",
        "io",
        "batch",
        "max_accuracy_loss",
        "max_mae_growth",
        "threshold",
        "search_budget",
        "golden",
    ):
        after = told.partition(f"--{name.replace('_', '-')} ")[2]
        assert after.partition("(default: ")[2].startswith(f"{getattr(Options, name)})"), name


def test_shapes_are_read_by_name() -> None:
    """A name may hold colons, equals signs and slashes; several inputs may be given."""
    options = cli.options(parse("--shape", "a:0=1,96,64", "--shape", "b=c=7"))
    assert options.shapes == {"a:0": (1, 96, 64), "b=c": (7,)}


@pytest.mark.parametrize(
    "args",
    [
        ["--shape", "1,2"],
        ["--shape", "x=1,,2"],
        ["--shape", "x=1,0"],
        ["--shape", "x=1,-3"],
        ["--shape", "x=1", "--shape", "x=2"],
        ["--version", "x"],
        ["--quantize", "automatic"],
        ["--batch", "2", "--dynamic-batch"],
        ["--max-accuracy-loss", "-0.1"],
        ["--threshold", "1.1"],
        ["--search-budget", "0"],
        ["--time-limit", "0"],
        ["--time-limit", "1e300"],
        ["--memory-limit", "8 gigs"],
        ["--memory-limit", "0"],
        ["--version", "0"],
        ["--batch", "0"],
        ["--golden", "0"],
        ["--min-agreement", "1.5"],
        ["--min-agreement", "nan"],
        ["--max-error", "-1"],
        ["--max-error", "inf"],
    ],
)
def test_values_that_make_no_sense_are_usage_errors(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Refused by the parser, exit code 2, with the flag named."""
    with pytest.raises(SystemExit) as caught:
        parse(*args)
    assert caught.value.code == 2
    assert args[0] in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [True, False])
def test_an_output_that_is_full_is_named_with_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, as_json: bool
) -> None:
    """`> /dev/full`: the bundle is there, and the line says both."""
    result = pipeline.Result(tmp_path / "out", None, samplereports.passing())  # type: ignore[arg-type]  # not read here
    monkeypatch.setattr(pipeline, "convert", lambda *_: result)
    monkeypatch.setattr(show, "as_text", lambda *_: "text")
    monkeypatch.setattr(show, "as_json", lambda *_: "json")
    monkeypatch.setattr(cli, "find_spec", lambda _: True)
    with open("/dev/full", "w") as full:  # noqa: PTH123  # as the shell opens it
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(UnavailableError, match=f"standard output: No space left .*is written: {tmp_path}/out"):
            cli.run(parse(*["--json"] * as_json))
        monkeypatch.undo()
        silence(full)


def test_a_refusal_is_told_though_the_output_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables cannot be printed; its line, and its exit code, are those of the refusal."""
    report = samplereports.refused()

    def refuse(*_: object) -> None:
        raise pipeline.RefusedError("--quantize int8", "is refused", "", report)

    monkeypatch.setattr(pipeline, "convert", refuse)
    monkeypatch.setattr(cli, "find_spec", lambda _: True)
    with open("/dev/full", "w") as full:  # noqa: PTH123  # as the shell opens it
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(pipeline.RefusedError):
            cli.run(parse())
        monkeypatch.undo()
        silence(full)


def silence(full: TextIO) -> None:
    """Let what a full file has not taken go nowhere, so that it can be closed."""
    with Path("/dev/null").open("w") as nowhere:
        os.dup2(nowhere.fileno(), full.fileno())
    full.flush()
