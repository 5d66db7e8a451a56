"""How `edged demo` ends: a line for --keep, a line for SIGTERM, and the files gone or kept as said."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from converters.demo import command, prepare


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing need be installed, and the signal's handler is put back."""
    monkeypatch.setattr(prepare, "check_installed", lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def run(*args: str) -> int:
    parser = argparse.ArgumentParser()
    command.configure(parser)
    return command.run(parser.parse_args(args))


def test_sigterm_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It unwinds what was begun, says so, and gives the shell's code for the signal."""
    places: list[Path] = []

    def play(_args: argparse.Namespace, directory: Path) -> int:
        places.append(directory)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        return 0

    monkeypatch.setattr(command, "_play", play)
    with pytest.raises(SystemExit) as caught:
        run("--keep")
    assert caught.value.code == 143
    assert capsys.readouterr() == ("", "demo: ended by SIGTERM; everything it started is stopped\n")
    assert not places[0].exists()


def test_keep_closes_with_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The files are gone, or lie where --out says; with --json the line goes where the other words go."""
    monkeypatch.setattr(command, "_play", lambda *_: 0)
    assert run("--keep") == 0
    assert capsys.readouterr().out == (
        "demo: ended: broker, daemon and sensors are stopped, its files are removed (--out DIR keeps them)\n"
    )
    run("--keep", "--json", "--out", str(tmp_path / "out"))
    said = capsys.readouterr()
    assert (said.out, said.err.endswith(f"its files are in {tmp_path / 'out'}\n")) == ("", True)
    run()
    assert capsys.readouterr() == ("", "")
