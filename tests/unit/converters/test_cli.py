"""The command's arguments; nothing heavy is imported to read them."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from converters import cli

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
        ["--quantize", "automatic"],
        ["--batch", "2", "--dynamic-batch"],
        ["--max-accuracy-loss", "-0.1"],
        ["--threshold", "1.1"],
        ["--search-budget", "0"],
        ["--time-limit", "0"],
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
