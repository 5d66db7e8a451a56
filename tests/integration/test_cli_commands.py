"""The real command in a process of its own: help, codes, one line for a mistake, never a traceback."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import tinymodel
from support.commands import edged

from edged import __version__, config


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A configuration that is right, beside its bundle (float32 [1, 3] to [1, 2])."""
    tinymodel.write_dense_bundle(tmp_path / "dense")
    path = tmp_path / "edged.yaml"
    path.write_text("""\
device: box
broker: {url: "mqtt://127.0.0.1"}
models:
  - {name: dense, bundle: dense}
streams:
  - {name: s, topic: "sensors/+/x", key_level: 1, fields: [a], window: {length: 3, hop: 1}, model: dense}
""")
    return path


def test_version_and_help() -> None:
    """--version is one line; --help lists every command, the exit codes and examples; no command is a usage error."""
    assert edged("--version").stdout == f"edged {__version__}\n"
    shown = edged("--help")
    assert shown.returncode == 0
    for word in (
        "run",
        "check",
        "inspect",
        "sample",
        "infer",
        "top",
        "exit codes:",
        "78  config",
        "edged run -c edged.yaml",
    ):
        assert f"  {word}" in shown.stdout or word in shown.stdout
    assert edged().returncode == 2
    assert edged("check").returncode == 2
    assert edged("--nonsense").returncode == 2


@pytest.mark.parametrize("closed", [c for n in (1, 2, 3) for c in itertools.combinations((0, 1, 2), n)], ids=str)
def test_standard_streams_that_are_closed(tmp_path: Path, closed: tuple[int, ...]) -> None:
    """In every combination: the codes are those of open ones, what is open says what it says, and never a traceback.

    No file that a command opens takes the place of one of them: what is meant for a terminal would be written into it.
    """
    tinymodel.write_dense_bundle(tmp_path / "dense")
    gone = " ".join(f"{number}>&-" for number in closed)
    for arguments, code in (
        (("inspect", tmp_path / "dense"), 0), (("sample", "minimal"), 0), (("--help",), 0),
        (("inspect", tmp_path / "none"), 65), (("run", "-c", tmp_path / "none"), 78), (("nonsense",), 2),
    ):  # fmt: skip
        command = shlex.join([sys.executable, "-m", "edged", *map(str, arguments)])
        done = subprocess.run(
            ["sh", "-c", f"{command} {gone}"], capture_output=True, text=True, check=False, timeout=60
        )
        whole = edged(*arguments)
        assert (done.returncode, whole.returncode) == (code, code)
        assert done.stdout == ("" if 1 in closed else whole.stdout)
        assert done.stderr == ("" if 2 in closed else whole.stderr)


def test_the_way_to_run_is_short() -> None:
    """`edged run` imports no package metadata and no other command before the configuration is read."""
    code = (
        "import sys; from edged.cli import main; main(['run', '-c', '/nonexistent.yaml']); "
        "print(*sorted(m for m in sys.modules if m.startswith('edged.commands.') or m in "
        "('importlib.metadata', 'asyncio', 'paho', 'tensorflow', 'difflib', 'tflite_runtime', 'ai_edge_litert')))"
    )
    # -S: an editable install's own finder may import metadata, which is not our doing.
    source = Path(config.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), *(p for p in sys.path if "site-packages" in p)])}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False, timeout=60, env=env
    )
    assert "no such file" in done.stderr
    assert set(done.stdout.split()) == {"edged.commands.run"}, done


def test_every_problem_of_a_configuration_is_a_line(tmp_path: Path) -> None:
    """`edged check` and `edged run` say the same lines and end with 78."""
    path = tmp_path / "bad.yaml"
    path.write_text("device: a/b\nbroker: {url: http://x}\nmodels:\n  - name: m\n    bundel: b\n")
    checked = edged("check", "-c", path)
    lines = checked.stderr.splitlines()
    assert checked.returncode == 78
    assert checked.stdout == ""
    assert [line.split(": ")[1].removeprefix(str(path)) for line in lines] == [":1", ":2", ":4", ":5"]
    assert lines[3].endswith("models[0].bundel: unknown key (did you mean 'bundle'?)")
    ran = edged("run", "-c", path)
    assert (ran.returncode, ran.stderr) == (78, checked.stderr)
    told = json.loads(edged("check", "-c", path, "--json").stdout)
    assert told["ok"] is False
    assert [problem["line"] for problem in told["problems"]] == [1, 2, 4, 5]


def test_check_says_what_would_run(served: Path) -> None:
    """Names, version, hash, shapes, where answers go; the same facts as JSON."""
    done = edged("check", "-c", served)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\nok\n")
    for part in ("dense version 1", "x: float32 1x3, 12 bytes raw", "sensors/+/x → edged/v1/dev/box/out/s/<key>"):
        assert part in done.stdout
    facts = json.loads(edged("check", "-c", served, "--json").stdout)
    assert facts["ok"] is True
    (model,) = facts["models"]
    assert model["content"]["model_sha256"][:12] in done.stdout
    assert model["queue"] == {"max_requests": 64, "max_bytes": 67108864, "overflow": "reject"}
    assert facts["streams"][0]["output_topic"] == "edged/v1/dev/box/out/s/<key>"


def test_check_tells_what_one_request_is(tmp_path: Path) -> None:
    """Requests that share an inference are each one row of the bundle's batch."""
    tinymodel.write_rows_bundle(tmp_path / "rows", 8)
    path = tmp_path / "edged.yaml"
    model = "{name: rows, bundle: rows, batch: {max_batch_size: 8}}"
    path.write_text(f'device: box\nbroker: {{url: "mqtt://127.0.0.1"}}\nmodels: [{model}]\n')
    done = edged("check", "-c", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "x: float32 1x3, 12 bytes raw" in done.stdout
    assert "y: float32 1x2, 8 bytes raw" in done.stdout


def test_check_tells_all_of_it_at_once(served: Path) -> None:
    """A damaged bundle (65), a window that does not fit, and a missing file (78): all told."""
    text = served.read_text().replace("length: 3", "length: 4")
    text = text.replace("bundle: dense}", "bundle: dense, cpus: [4095], queue: {max_bytes: 11B}}")
    text = text.replace('127.0.0.1"', '127.0.0.1", username: u, password_file: pw')
    served.write_text(text.replace("models:\n", "models:\n  - {name: other, bundle: nowhere}\n"))
    done = edged("check", "-c", served)
    assert done.returncode == 78
    for part in (
        "nowhere: no such bundle", "streams.s: ", "broker.password_file: ",
        "models.dense.queue.max_bytes: 11 bytes cannot hold one request of 12 bytes",
        "edged: warning: models.dense.cpus: cpus 4095 not on this machine",
    ):  # fmt: skip
        assert part in done.stderr, done.stderr
    assert all(line.startswith("edged: ") for line in done.stderr.splitlines())
    assert "ok" not in done.stdout.splitlines()


def test_check_a_damaged_bundle(served: Path) -> None:
    """One changed byte in the model is bad data: 65."""
    model = served.parent / "dense/model.tflite"
    data = bytearray(model.read_bytes())
    data[100] ^= 1
    model.write_bytes(data)
    done = edged("check", "-c", served)
    assert done.returncode == 65
    assert "model.tflite does not match its sha256" in done.stderr


def test_check_warns_of_sensors_that_share_a_window(served: Path) -> None:
    """A wildcard without key_level works, and is hardly ever meant."""
    served.write_text(served.read_text().replace("key_level: 1, ", ""))
    done = edged("check", "-c", served)
    assert done.returncode == 0
    assert "edged: warning: streams.s.key_level: " in done.stderr


def test_samples(tmp_path: Path) -> None:
    """The list names each; what is printed is the file, and loads; a near miss is guessed."""
    listed = edged("sample", cwd=tmp_path).stdout
    for name in ("minimal", "sensors", "reference"):
        assert f"{name} " in listed
        text = edged("sample", name, cwd=tmp_path).stdout
        assert text == (Path(__file__).parents[2] / f"configs/{name}.yaml").read_text()
        config.loads(text, name, tmp_path)
    done = edged("sample", "sensor")
    assert (done.returncode, done.stderr) == (2, "edged: sensor: no such sample (did you mean 'sensors'?)\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [("sample", "reference"), ("--help",), ("check", "--help")])
def test_a_closed_pipe_is_no_news(args: tuple[str, ...], unbuffered: str) -> None:
    """A reader that has gone (`edged … | head -0`) is nothing to speak of, whoever notices it first."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "edged", *args]
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60, env=env)
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(unbuffered: str) -> None:
    """What cannot be written is told, once, and is no fault of ours."""
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "edged", "sample"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, timeout=60, env=env)
    assert (done.returncode, done.stderr) == (69, b"edged: output: No space left on device\n")


def test_a_terminal_without_utf_8_is_no_fault(served: Path) -> None:
    """Characters an ASCII terminal lacks come out escaped."""
    done = edged("check", "-c", served, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert "\\u2192" in done.stdout


def test_the_journal_gets_priorities_and_no_time(tmp_path: Path) -> None:
    """Where standard error is the journal's stream (device:inode in JOURNAL_STREAM), lines begin with <priority>."""
    code = "import logging; from edged.cli import setup_logging; setup_logging('info'); logging.error('a\\nb')"
    for mine in (True, False):
        with (tmp_path / "err").open("w") as file:
            found = os.fstat(file.fileno())
            env = os.environ | {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + (not mine)}"}
            subprocess.run([sys.executable, "-c", code], stderr=file, env=env, check=True, timeout=60)
        text = (tmp_path / "err").read_text()
        assert (text == "<3>a\n<3>b\n") == mine


def test_ctrl_c_is_quiet(tmp_path: Path) -> None:
    """SIGINT while a command waits ends with 130 and without a word."""
    os.mkfifo(tmp_path / "slow.bin")
    child = subprocess.Popen(
        [sys.executable, "-m", "edged", "infer", "--device", "d", "--model", "m", tmp_path / "slow.bin"],
        stderr=subprocess.PIPE,
        text=True,
    )
    # Opening the pipe's other end returns only when the command has opened its own: it now waits for bytes.
    with (tmp_path / "slow.bin").open("w"):
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, "")
