"""Values of command-line options: what is read, and what is said of what cannot be."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import pytest

from edged import arguments

READ = (
    (arguments.whole, "7", 7),
    (arguments.share, "0.5", 0.5),
    (arguments.share, "1", 1.0),
    (arguments.amount, "0", 0.0),
    (arguments.amount, "1e3", 1000.0),
    (arguments.seconds, "604800", 604800.0),
    (arguments.wait, "0", 0.0),
    (arguments.size, "4096", 4096),
    (arguments.size, "8GB", 8 * 10**9),
    (arguments.size, "1.5 MiB", 3 << 19),
    (arguments.shape, "1,96,64", ("", (1, 96, 64))),
    (arguments.shape, "a=b:0=7", ("a=b:0", (7,))),
    (arguments.named_shape, "x=1,2", ("x", (1, 2))),
)
REFUSED = (
    (arguments.whole, ("0", "-1", "1.5", "x", "", "9" * 5000), "a whole number from 1"),
    (arguments.share, ("-0.1", "1.01", "nan", "x"), "a number from 0 to 1"),
    (arguments.amount, ("-1", "inf", "nan", ""), "a number, 0 or more"),
    (arguments.seconds, ("0", "-1", "inf", "nan", "1e9", "x"), "more than 0 and at most 31536000 seconds"),
    (arguments.wait, ("-1", "86401", "nan", "x"), "0 to 86400 seconds"),
    (arguments.size, ("0", "0 MiB"), "1 byte or more"),
    (arguments.shape, ("x=", "=", "1,,2", "x=1,0", "x=1,-3", ""), "like NAME=1,96,64"),
    (arguments.named_shape, ("1,2", "=1"), "like NAME=1,96,64"),
)


def parser(name: str, read: Callable[[str], object]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="p")
    made.add_argument(name, type=read)
    return made


@pytest.mark.parametrize(("read", "text", "value"), READ)
def test_what_is_read(read: Callable[[str], object], text: str, value: object) -> None:
    """Numbers, sizes with and without unit, shapes with and without name; names hold equals signs themselves."""
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "says"), [(read, text, says) for read, texts, says in REFUSED for text in texts]
)
def test_what_is_refused(
    read: Callable[[str], object], text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse shows the option, the rule and the text, and no name of a function of ours."""
    with pytest.raises(SystemExit):
        parser("--some", read).parse_args([f"--some={text}"])
    assert capsys.readouterr().err.splitlines()[-1] == f"p: error: argument --some: must be {says}, got {text!r}"


def test_a_size_that_is_none_tells_how_sizes_are_written(capsys: pytest.CaptureFixture[str]) -> None:
    """The rule is that of the configuration, in its words."""
    with pytest.raises(SystemExit):
        parser("--max", arguments.size).parse_args(["--max=8 gigs"])
    assert "argument --max: expected a size in bytes such as 64MiB, 10kB or 4096" in capsys.readouterr().err


def test_an_option_by_name_is_given_once_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Two shapes for one input are a mistake, of which none is dropped; the default is left as it was."""
    default: dict[str, tuple[int, ...]] = {}
    made = argparse.ArgumentParser()
    made.add_argument("--shape", type=arguments.shape, action=arguments.ByName, default=default)
    assert made.parse_args(["--shape", "a=1", "--shape", "b=2,3"]).shape == {"a": (1,), "b": (2, 3)}
    assert (made.parse_args([]).shape, default) == ({}, {})
    for words, says in ((["a=1", "a=1"], "is given twice for 'a'"), (["1", "2"], "is given twice")):
        with pytest.raises(SystemExit):
            made.parse_args([word for text in words for word in ("--shape", text)])
        assert f"argument --shape: {says}\n" in capsys.readouterr().err


def test_no_command_has_readers_of_its_own() -> None:
    """Sizes, counts and times read the same in every command: no parser takes `int` or `float` as they are."""
    root = Path(arguments.__file__).parent
    parsers = [*(root / "commands").glob("*.py"), root / "client" / "options.py", root.parent / "converters" / "cli.py"]
    own = [path.name for path in parsers if any(f"type={name}" in path.read_text() for name in ("int", "float", "_"))]
    assert own == []
