"""The command line in this process: how commands are found, and what becomes of what they raise."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from importlib import metadata
from types import SimpleNamespace

import pytest

from edged import cli
from edged.errors import BadDataError, ExitCode, UnavailableError


class Fake:
    """A command of another package; `error` is what it raises."""

    HELP = "do nothing"
    EPILOG = "examples:\n  edged fake"
    error: BaseException | None = None

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--log-level", default="mine", help="its own meaning")

    def run(self, args: argparse.Namespace) -> int:
        assert args.log_level == "info"
        if self.error is not None:
            raise self.error
        return 3


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    """`edged fake`, found as an entry point would be. The root logger is put back."""
    command = Fake()
    entry = SimpleNamespace(name="fake", load=lambda: command)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [entry] if group == "edged.commands" else [])
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield command
    root.handlers[:], root.level = before


ARGS = ["fake", "--log-level", "info"]


def test_a_foreign_command_runs_and_its_code_is_returned(fake: Fake) -> None:
    """A module of the entry-point group works like a built-in one, and its own options win over the common ones."""
    assert cli.main(ARGS) == 3


def test_a_foreign_command_cannot_take_a_built_in_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another package cannot replace `edged sample`."""
    entry = SimpleNamespace(name="sample", load=lambda: pytest.fail("loaded"))
    monkeypatch.setattr(metadata, "entry_points", lambda **_: [entry])
    assert cli.main(["sample"]) == 0
    assert cli.main(["--help"]) == 0
    assert capsys.readouterr().out.count("\n  sample ") == 1


def test_a_foreign_command_that_cannot_be_imported_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One broken package costs its own line in --help, not the help."""

    def load() -> None:
        raise ImportError("no module named x")

    monkeypatch.setattr(metadata, "entry_points", lambda **_: [SimpleNamespace(name="broken", load=load)])
    assert cli.main(["--help"]) == 0
    assert "broken    (cannot be loaded: no module named x)" in capsys.readouterr().out
    assert cli.main(["broken"]) == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err.startswith("edged: edged broken: cannot be loaded: no module named x (")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (
            BadDataError("m.tflite", "is no model", "copy it again"),
            65,
            "edged: m.tflite: is no model (copy it again)\n",
        ),
        (UnavailableError("broker", "refused"), 69, "edged: broker: refused\n"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(5), 5, ""),
        (
            ValueError("two\nlines"),
            70,
            "edged: internal error: ValueError: two lines (this is a fault in edged; --debug",
        ),
        (RecursionError("deep"), 70, "edged: internal error: RecursionError: deep"),
        (BrokenPipeError("socket"), 70, "edged: internal error: BrokenPipeError: socket"),
    ],
)
def test_what_a_command_raises(
    fake: Fake, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    """A mistake is one line with its code; anything else is a fault of ours, said so, without a traceback."""
    fake.error = error
    assert cli.main(ARGS) == code
    err = capsys.readouterr().err
    assert err.startswith(text)
    assert err.count("\n") == bool(text)


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_shows_the_traceback(
    fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """--debug and EDGED_DEBUG=1 add the traceback to the line."""
    fake.error = ValueError("x")
    if how == "variable":
        monkeypatch.setenv("EDGED_DEBUG", "1")
    assert cli.main([*ARGS, *(["--debug"] if how == "option" else [])]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_command_is_guessed(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    """Built-in and foreign names are both near misses."""
    assert cli.main(["chek"]) == 2
    assert capsys.readouterr().err == "edged: chek: no such command (did you mean 'check'?)\n"
    assert cli.main(["fak"]) == 2
    assert "did you mean 'fake'?" in capsys.readouterr().err
    assert cli.main(["zzzzzz"]) == 2
    assert "(edged --help lists them)" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(cli.BUILT_IN))
def test_every_built_in_command_keeps_the_contract(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table's help line is the module's; --help shows runnable examples of this very command."""
    command = cli._load(name)
    assert cli.BUILT_IN[name] == command.HELP
    assert cli.main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"\n  edged {name}" in out
    assert "--debug" in out


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_logging_goes_to_standard_error_from_its_level_on(
    fake: Fake, capsys: pytest.CaptureFixture[str], level: str
) -> None:
    """The level holds, and a line has a time and a level."""
    cli.setup_logging(level)
    logging.getLogger("x").info("hello")
    err = capsys.readouterr().err
    assert err.endswith(" INFO    hello\n") if level == "debug" else err == ""


@pytest.mark.parametrize(("own", "expected"), [({"LOG_LEVEL": "debug"}, logging.DEBUG), ({}, logging.WARNING)])
def test_a_command_may_bring_its_own_log_level(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, own: dict[str, str], expected: int
) -> None:
    """Where --log-level is not given the module's LOG_LEVEL holds, else warnings; --log-level wins over both."""
    module = SimpleNamespace(HELP="x", EPILOG="", configure=lambda _: None, run=lambda _: 0, **own)
    monkeypatch.setattr(cli, "_load", lambda _: module)
    assert cli.main(["fake"]) == 0
    assert logging.getLogger().level == expected
    assert cli.main(["fake", "--log-level", "error"]) == 0
    assert logging.getLogger().level == logging.ERROR


def test_the_daemon_says_what_it_does() -> None:
    """`edged run` logs from info on."""
    assert cli._load("run").LOG_LEVEL == "info"  # type: ignore[attr-defined]


EVIL = "\x1b]0;owned\x07\x9b2J\u202e"


@pytest.mark.parametrize("raised", [BadDataError(EVIL, EVIL, EVIL), RuntimeError(EVIL)])
def test_no_escape_sequence_in_an_error(fake: Fake, capsys: pytest.CaptureFixture[str], raised: Exception) -> None:
    """Names from files, the network or the command line reach the terminal without control characters."""
    fake.error = raised
    cli.main(ARGS)
    text = capsys.readouterr().err
    assert "]0;owned" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("argv", [["check", EVIL], [EVIL], ["check", "--log-level", EVIL], ["infer", f"--x{EVIL}"]])
def test_no_escape_sequence_in_a_usage_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the command line itself is repeated."""
    assert cli.main(argv) == ExitCode.USAGE
    assert capsys.readouterr().err.replace("\n", "").isprintable()


@pytest.mark.usefixtures("fake")  # puts the root logger back
def test_no_escape_sequence_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    """A log line may repeat what a stranger sent."""
    cli.setup_logging("info")
    logging.getLogger("edged.test").error("%s", EVIL)
    text = capsys.readouterr().err
    assert "]0;owned" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bench", "--rate", "x"), "edged bench: error: argument --rate/--rates: must be"),
        (("bench", "--compare", "a"), "edged bench: error: argument --compare: expected 2 arguments"),
        (("run",), "edged run: error: the following arguments are required: -c/--config"),
        (("top", "--no\nsuch\x1b[2J"), "edged top: error: unrecognized arguments: --no such"),
        (("--nosuch",), "edged: error: unrecognized arguments: --nosuch"),
    ],
)
def test_a_slip_is_one_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the usage, which of some commands is a screen; the line says where to read it."""
    assert cli.main(list(words)) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith(said)
    assert told.err.endswith(f"(see edged {words[0]} --help)\n" if words[0][0] != "-" else "(see edged --help)\n")
    assert "\x1b" not in told.err
