"""`edged record` without a broker: its options, what ends it, and what it tells."""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edged.commands import record
from edged.commands._record_signals import Told
from edged.commands._record_told import RecordProgress, Summary
from edged.errors import BadDataError, UnavailableError, UsageError
from edged.recording.keep import Kept, Rule
from edged.recording.plan import Plan
from edged.recording.recorder import Recorder
from edged.recording.source import Arrays
from edged.transports import open_transport
from edged.transports.base import Message, Subscription

CONFIG = {
    "device": "box",
    "broker": {"url": "mqtt://127.0.0.1:1"},
    "models": [{"name": "m", "bundle": "m"}],
    "streams": [{"name": "s", "topic": "t/+", "fields": ["a"], "model": "m"}],
}


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    record.configure(parser)
    return parser.parse_args(["-c", "edged.yaml", "-o", "c.npz", *words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "edged.yaml").write_text(json.dumps(CONFIG))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def recorder(topic: str = "t") -> tuple[Recorder, Plan]:
    source = Arrays("x")
    made = Plan("payloads", Subscription(topic, 1), topic, source, ("x",))
    return Recorder(source, Kept(Rule()), topic, {}), made


def give(to: Recorder, topic: str, *values: float) -> None:
    out = io.BytesIO()
    np.save(out, np.float32(values))
    to.on_message(Message(topic, out.getvalue()))


@pytest.mark.parametrize(
    "words",
    [["--count", "0"], ["--every", "x"], ["--max-bytes", "1 parsec"], ["--shape", "x=1,0"], ["--shape", "x="],
     ["--dtype", "text"], ["--force", "--append"], ["--seconds", "nan"], ["--seconds", "0"],
     ["--shape", "x=1,1", "--shape", "x=1,1"], ["--connect-timeout", "-1"], ["--max-bytes", "0"]],
)  # fmt: skip
def test_a_value_that_makes_no_sense_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers, sizes, shapes and dtypes are checked before anything is read."""
    with pytest.raises(SystemExit):
        parsed(*words)
    assert words[-2] in capsys.readouterr().err or "--append" in words


def test_sizes_and_shapes_are_read() -> None:
    """A size with its unit or in bytes; a shape with the input's name or without."""
    args = parsed("--max-bytes", "64MiB", "--shape", "1,2", "--shape", "a=b=1,3")
    assert args.max_bytes == 64 << 20
    assert args.shape == {"": (1, 2), "a=b": (1, 3)}
    assert parsed("--max-bytes", "4096").max_bytes == 4096


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--spread"], "--spread: needs --count or --per-key, one of the two"),
        (["--spread", "--count", "3", "--per-key", "1"], "--spread: needs --count or --per-key, one of the two"),
        (["--input", "y", "--label", "3"], "--input: 'y' is a name that `edged convert --eval` takes for labels"),
        (["--label", ""], "--label: must be a class number or a name, got ''"),
        (["--label", " "], "--label: must be a class number or a name"),
        (["--label", "a\nb"], r"--label: must be a class number or a name, got 'a\\nb'"),
        (["--label", "9" * 20], "--label: a class number has at most 18 digits"),
        (["--label", "9" * 5000], "--label: a class number has at most 18 digits"),
        (["--client-id", "edged-box"], "--client-id: 'edged-box' is the daemon's own: the broker would throw"),
        (["--client-id", ""], "--client-id: must be 1 to 65535 bytes"),
        (["--max-bytes", "1"], r"--max-bytes: 1 B hold no sample \(one takes 260 B in memory\)"),
        (["--dtype", "int8"], "--dtype: says what payloads of --shape hold"),
        (["--append", "-o", "to.npz"], "-o: to.npz is a link to"),
    ],
)
def test_options_that_do_not_go_together(folder: Path, words: list[str], says: str) -> None:
    """Refused before there is a connection or a file."""
    (folder / "to.npz").symlink_to("nowhere.npz")
    with pytest.raises(UsageError, match=says):
        record.run(parsed(*words))
    assert sorted(path.name for path in folder.iterdir()) == ["edged.yaml", "to.npz"]


@pytest.mark.parametrize(
    ("there", "words", "says"),
    [
        (None, ["--label", "1"], "c.npz has no labels"),
        (["sit"], [], "c.npz has labels"),
        (["sit"], ["--label", "3"], "the labels of c.npz are of another kind"),
        ([3], ["--label", "sit"], "the labels of c.npz are of another kind"),
        ([[1, 0]], ["--label", "3"], "the labels of c.npz are of another kind"),
    ],
)
def test_labels_are_of_all_samples_or_of_none(folder: Path, there: Any, words: list[str], says: str) -> None:
    """What would make a file that --eval refuses is refused before the recording, and the file stays."""
    np.savez(
        folder / "c.npz", input=np.zeros((1, 1, 1), np.float32), **({} if there is None else {"y": np.array(there)})
    )
    before = (folder / "c.npz").read_bytes()
    with pytest.raises(UsageError, match=says):
        record.run(parsed("--append", *words))
    assert (folder / "c.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (
            {"input": np.zeros((1, 1, 2), np.float32)},
            r"c.npz: holds 'input' float32 \[1, 2\], the recording 'input' float",
        ),
        ({"input": np.zeros((1, 1, 1))}, r"holds 'input' float64 \[1, 1\]"),
        ({"x": np.zeros((1, 1, 1), np.float32)}, "holds 'x' float32"),
        ({"y": np.zeros(1, np.int64)}, "is no recording: it holds labels alone"),
    ],
)
def test_a_file_that_the_windows_do_not_fit_is_known_at_the_start(
    folder: Path, arrays: dict[str, Any], says: str
) -> None:
    """Shape and dtype of what will be cut are known: no hour is recorded for a file that cannot take it."""
    np.savez(folder / "c.npz", **arrays)
    words = ["--label", "1"] if "y" in arrays else []
    with pytest.raises(BadDataError, match=says):
        record.run(parsed("--append", *words))
    assert sorted(path.name for path in folder.iterdir()) == ["c.npz", "edged.yaml"]


@pytest.mark.parametrize(
    ("given", "expected", "dtype"),
    [("3", 3, "int64"), ("-1", -1, "int64"), ("walk", "walk", "<U4"), ("1.5", "1.5", "<U3")],
)
def test_a_label_is_a_class_number_or_a_name(given: str, expected: object, dtype: str) -> None:
    """Whole numbers are numbers, all else is a name."""
    label = record._label(given, recorder()[1])["y"]
    assert (label.item(), str(label.dtype)) == (expected, dtype)


class _Transport:
    """As much of one as the end of a recording looks at."""

    def __init__(self, refused: int) -> None:
        self._refused = refused

    def stats(self) -> dict[str, int]:
        return {"subscriptions_refused": self._refused}


def test_a_subscription_that_the_broker_refuses_ends_it() -> None:
    """An error at once, not an hour of silence."""
    found, made = recorder()
    args = parsed("--seconds", "10")
    session = record._Session(args, record.requester("loopback://refused", {}), made, found, Told())
    assert session._ended(_Transport(0)) == ""  # type: ignore[arg-type]
    with pytest.raises(UnavailableError, match="refuses the subscription to t"):
        session._ended(_Transport(1))  # type: ignore[arg-type]
    session.seconds = 10.0
    assert session._ended(_Transport(0)) == "--seconds"  # type: ignore[arg-type]


def test_a_session_records_until_it_is_full() -> None:
    """Over a transport in process: it ends by the count, and the transport is left."""
    source = Arrays("x")
    made = Plan("payloads", Subscription("t/#", 1), "t/#", source, ("x",))
    found = Recorder(source, Kept(Rule(count=2)), "t/#", {})
    sender = open_transport("loopback://full")
    sender.start(lambda _: None, [])
    give_now = io.BytesIO()
    np.save(give_now, np.float32([1, 2]))
    retained = Message("t/a", give_now.getvalue(), retain=True)
    sender.publish(retained)  # stale: counted, not recorded
    requester = record.requester("loopback://full", {})
    session = record._Session(parsed(), requester, made, found, Told())
    session._connect = lambda: [sender.publish(Message(f"t/{n}", give_now.getvalue())) for n in range(4)]  # type: ignore[assignment,method-assign,return-value]
    assert session.record() == "--count"
    assert (found.kept.count, found.source.counters()["retained"]) == (2, 1)
    sender.stop()


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_a_signal_is_a_word_and_handlers_are_put_back(number: signal.Signals, name: str) -> None:
    """While it lasts a signal ends nothing by itself; afterwards all is as it was."""
    before = signal.getsignal(number)
    with Told() as told:
        os.kill(os.getpid(), number)
        assert told.name == name
    assert signal.getsignal(number) is before


def test_nohup_stays_nohup() -> None:
    """Who had SIGHUP ignored wants the recording to go on without its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Told() as told:
            os.kill(os.getpid(), signal.SIGHUP)
            assert told.name == ""
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nothing_recorded_says_what_came() -> None:
    """No message at all, and messages that were not usable, are two mistakes with two messages."""
    found, made = recorder()
    with pytest.raises(BadDataError, match=r"t: no message came until Ctrl-C \(does anything publish there"):
        record._samples(found, made, "c.npz", "Ctrl-C")
    found.on_message(Message("t", b"rubbish"))
    with pytest.raises(BadDataError, match=r"t: nothing was recorded: 1 messages \(1 bad\) \(t: not a \.npy stream\)"):
        record._samples(found, made, "c.npz", "Ctrl-C")
    small = Recorder(made.source, Kept(Rule(max_bytes=1)), "t", {})
    give(small, "t", 1)
    with pytest.raises(BadDataError, match="--max-bytes: ended it before the first sample of t, which is larger"):
        record._samples(small, made, "c.npz", "--max-bytes")


def test_what_was_recorded_outlives_a_broker_that_changes_its_mind() -> None:
    """A subscription refused after a reconnect ends the recording; only without a sample is it an error."""
    found, made = recorder()
    session = record._Session(parsed(), record.requester("loopback://refused", {}), made, found, Told())
    give(found, "t", 1)
    assert "refuses the subscription to t" in session._ended(_Transport(1))  # type: ignore[arg-type]


def test_a_lost_connection_is_told_to_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each loss, not for each attempt that fails after it, nor for those before the first connection."""
    found, made = recorder()
    lost: list[int] = []
    monkeypatch.setattr(found, "interrupted", lambda: lost.append(1))
    session = record._Session(parsed(), record.requester("loopback://lost", {}), made, found, Told())
    for connected in (False, True, False, False, True, False):
        session._note(connected, "" if connected else "gone")
    assert (len(lost), session.disconnects) == (2, 2)


class _Gone(io.StringIO):
    """A terminal that went away."""

    def isatty(self) -> bool:
        return True

    def write(self, _text: str) -> int:
        raise OSError(5, "Input/output error")


def test_a_terminal_that_goes_away_ends_nothing() -> None:
    """Its progress is not worth the recording."""
    found, _ = recorder()
    progress = RecordProgress(_Gone(), "payloads", None)
    progress.show(found, 1.0, "")
    progress.done()


def summary(*, before: int = 0) -> Summary:
    found, made = recorder("#")
    for n in range(30):
        give(found, f"key-{n % 25:02}", n, -n)
    found.on_message(Message("key-00", b"rubbish"))
    return Summary(Path("c.npz"), made, found, "Ctrl-C", 61.5, 2, found.kept.samples(), before)


def test_the_summary_tells_all_that_was_not_recorded() -> None:
    """The file, dtype, shape and range, the keys with most samples first, what was not usable and when it was deaf."""
    lines = summary(before=5).as_text().splitlines()
    assert lines[0] == "c.npz: 30 samples of payloads in 62 s, 35 with those before (ended by Ctrl-C)"
    assert lines[1] == "  x    float32 2, -29 to 29"
    assert lines[2] == "  key  key-00: 2"
    assert "  key  and 5 more" in lines
    assert "       1 not usable" in lines
    assert "       key-00: not a .npy stream" in lines
    assert "       2 times without a connection: messages of that time are missing" in lines


def test_the_summary_as_json_is_complete() -> None:
    """Counts agree with each other, and no number is hidden in a sentence."""
    facts = json.loads(summary().as_json())
    assert (facts["samples"], facts["samples_in_file"], facts["messages"]) == (30, 30, 31)
    assert sum(facts["keys"].values()) == 30
    assert len(facts["keys"]) == 25
    assert facts["arrays"] == [{"name": "x", "dtype": "float32", "shape": [2], "minimum": -29.0, "maximum": 29.0}]
    assert (facts["counters"]["bad"], facts["disconnects"], facts["ended_by"]) == (1, 2, "Ctrl-C")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals() -> None:
    """One line that is redrawn, with samples, keys, rate and trouble; nothing at all in a pipe or a log."""
    found, _ = recorder("#")
    for n in range(4):
        give(found, f"k{n % 2}", n)
    screen, pipe = _Terminal(), io.StringIO()
    for stream in (screen, pipe):
        progress = RecordProgress(stream, "payloads from #", 10)
        progress.show(found, 2.0, "gone\x1b[2J")
        progress.done()
    assert "\r\x1b[K4 of 10 samples, 2 keys, 2.0/s, no connection: gone[2J, 2 s" in screen.getvalue()
    assert pipe.getvalue() == ""
