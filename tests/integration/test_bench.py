"""`edged bench` as a user has it: real mosquitto, a real daemon, and its pages in a real browser."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import benchruns, browser, tinymodel
from support.brokers import eventually
from support.commands import edged
from support.daemons import DEVICE, DaemonProcess

from edged.bench import markup, page, page_compare
from edged.broker import EmbeddedBroker
from edged.latency import Histogram

_READABLE = 4.5
_VIEWS = {
    "phone": (browser.PHONE, False),
    "small phone by night": (browser.SMALL_PHONE, True),
    "desk": ((1280, 900), True),
}
_PAGES = {name: lambda make=make: page.page(make()) for name, make in benchruns.ALL.items()} | {
    "compare": lambda: page_compare.page(benchruns.sweep(), benchruns.sweep(scale=1.3)),
    "unlike": lambda: page_compare.page(benchruns.single(), benchruns.soak()),
}


@pytest.fixture(scope="module")
def daemon(mosquitto: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    directory = tmp_path_factory.mktemp("bench-daemon")
    tinymodel.write_dense_bundle(directory / "dense")
    with DaemonProcess(directory, mosquitto.port, {"models": [{"name": "dense", "bundle": "dense"}]}) as daemon:
        daemon.ready()
        yield daemon


def bench(broker: EmbeddedBroker, *words: object, device: str = DEVICE) -> subprocess.CompletedProcess[str]:
    return edged("bench", "--broker", broker.url_v5, "--device", device, "--model", "dense", *words)


def test_a_device_is_measured_and_agrees_with_itself(
    mosquitto: EmbeddedBroker, daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Every request is answered once; the device counted as many as were sent; the files tell where and on what."""
    words = ("--rate", "100", "--duration", "2s", "--warmup", "20", "--qos", "1", "--deadline-ms", "20000")
    done = bench(mosquitto, *words, "--pid", daemon.process.pid, "--json", "-o", tmp_path / "out.json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    (run,) = found["runs"]
    assert [run[key] for key in ("asked", "ok", "missing", "doubled", "unsent", "errors")] == [200, 200, 0, 0, 0, {}]
    assert (run["payload_bytes"], run["codec"], run["qos"]) == (12, "raw", 1)
    assert run["stages"]["requests"] == 220
    assert not run["stages"]["others"]
    assert 0 < run["stages"]["stages"]["total"]["p50_ms"] < run["latency"]["p50_ms"]
    assert Histogram.decode(run["latency"]["histogram"]).count == run["latency"]["n"] == 200
    ends = run["process"]["ends"]
    assert ends["rss_bytes"][0] > 1_000_000
    assert ends["threads"][1] >= 3
    assert ends["descriptors"][1] > 5
    assert (found["target"]["state"], found["target"]["models"]["dense"]["version"]) == ("ready", 1)
    assert found["host"]["cores"] == os.cpu_count()
    assert "--duration 2s" in found["command"]
    assert json.loads((tmp_path / "out.json").read_text()) == found
    assert (tmp_path / "out.html").read_text() == page.page(found)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_the_table_for_a_person(
    mosquitto: EmbeddedBroker, daemon: DaemonProcess, protocol: str, tmp_path: Path
) -> None:
    """A matrix of loads, in both protocols: a row each, and where the time goes; two runs can be compared."""
    words = ("--closed", "--concurrency", "1,4", "--duration", "300ms", "--warmup", "5", "--protocol", protocol)
    done = bench(mosquitto, *words, "--deadline-ms", "20000", "-o", tmp_path / "a")
    assert (done.returncode, done.stderr) == (0, "")
    assert "dense, 12 B, QoS 0, closed, 1 in flight" in done.stdout
    assert "dense, 12 B, QoS 0, closed, 4 in flight" in done.stdout
    assert "network + client" in done.stdout
    file = tmp_path / "a" / "bench.json"
    compared = edged("bench", "--compare", file, file, "-o", tmp_path / "b")
    assert compared.returncode == 0
    assert "1.000x" in compared.stdout
    assert (tmp_path / "b" / "compare.html").stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "device", "code", "said"),
    [
        (("--max-p99-ms", "0.001"), DEVICE, 65, "is over 0.001 ms"),
        (("--payload", "5"), DEVICE, 65, "answers INVALID_ARGUMENT to 5 bytes of raw for dense"),
        (("--model", "nosuch"), DEVICE, 69, "has no model 'nosuch' (it has dense)"),
        (("--model", "nosuch", "--payload", "12"), DEVICE, 69, "answers NOT_FOUND"),
        (("--connect-timeout", "0.3"), "nobody", 69, "has told no state"),
        (("--connect-timeout", "0.3", "--payload", "5", "--deadline-ms", "50"), "nobody", 69, "no answer from dense"),
        (("--pid", "4194305"), DEVICE, 69, "there is no process 4194305 here"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_one_line_and_a_code(
    mosquitto: EmbeddedBroker, daemon: DaemonProcess, words: tuple[str, ...], device: str, code: int, said: str
) -> None:
    """For CI: bad data, or the target is away."""
    done = bench(mosquitto, "--duration", "300ms", "--warmup", "1", *words, device=device)
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert said in done.stderr


def test_no_broker() -> None:
    """A port where nobody listens."""
    done = edged("bench", "--broker", "mqtt://127.0.0.1:9", "--device", "d", "--model", "m", "--connect-timeout", "0.5")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
    assert done.stderr.startswith("edged: 127.0.0.1:9: no connection within 0.5 s")


def test_an_interrupted_run_writes_what_there_is(
    mosquitto: EmbeddedBroker, daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Ctrl-C on a terminal: the line that moves is cleared, the table is printed, and both files are there."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    command = [
        sys.executable, "-m", "edged", "bench", "--broker", mosquitto.url_v5, "--device", DEVICE, "--model", "dense",
        "--rate", "50", "--duration", "10m", "--warmup", "1", "-o", str(tmp_path / "cut"),
    ]  # fmt: skip
    shown = bytearray()
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        eventually(lambda: b"/600 s" in _drawn(ours, shown), "the progress", 30)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in _drawn(ours, shown).decode()
    assert "interrupted: these are the figures until then" in out
    found = json.loads((tmp_path / "cut" / "bench.json").read_text())
    assert found["interrupted"]
    (run,) = found["runs"]
    assert 0 < run["ok"] <= run["asked"]
    assert 0 < run["seconds"] < 60
    assert (tmp_path / "cut" / "bench.html").stat().st_size > 5000
    os.close(ours)
    os.close(theirs)


def _drawn(terminal: int, shown: bytearray) -> bytearray:
    with contextlib.suppress(BlockingIOError, OSError):
        while chunk := os.read(terminal, 65536):
            shown += chunk
    return shown


def test_loopback_needs_no_broker(tmp_path: Path) -> None:
    """A bundle, or a configuration, is served in this process and measured; the broker of the file is not asked."""
    tinymodel.write_dense_bundle(tmp_path / "dense", name="own")
    models = [{"name": "dense", "bundle": "dense"}]
    config = {"device": "box", "broker": {"url": "mqtt://127.0.0.1:9"}, "models": models, "state_dir": "state"}
    (tmp_path / "edged.yaml").write_text(json.dumps(config))
    for words, model in ((("--bundle", tmp_path / "dense"), "own"), (("-c", tmp_path / "edged.yaml"), "dense")):
        load = ("--rate", "50", "--duration", "500ms", "--warmup", "1", "--deadline-ms", "20000")
        done = edged("bench", "--loopback", *words, *load, "--json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        (run,) = found["runs"]
        assert (run["model"], run["asked"], run["ok"], run["missing"]) == (model, 25, 25, 0)
        assert run["stages"]["requests"] == 26
        assert found["target"]["transport"] == "loopback"


def test_a_model_that_keeps_state_is_measured(tmp_path: Path) -> None:
    """Every request is a step of the one state of the user, each is answered, and the run says so."""
    tinymodel.write_memory_bundle(tmp_path / "memory")
    load = ("--closed", "--concurrency", "4", "--duration", "300ms", "--warmup", "5", "--deadline-ms", "20000")
    done = edged("bench", "--loopback", "--bundle", tmp_path / "memory", *load, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (run,) = found["runs"]
    assert (run["errors"], run["missing"], run["ok"]) == ({}, 0, run["asked"])
    assert [note for note in run["notes"] if note.startswith("the model keeps state")]
    assert found["target"]["models"]["memory"]["keyed"]["keys"] == 1


def test_a_broker_without_qos_2_is_told_as_such() -> None:
    """It ends the connection: that, and what to do, is in the one line."""
    with EmbeddedBroker("mosquitto", lines=("max_qos 1",)) as broker:
        done = bench(broker, "--qos", "2", "--payload", "5", "--connect-timeout", "2", "--protocol", "5")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
    assert "no answer from dense at QoS 2" in done.stderr
    assert "QoS not supported" in done.stderr
    assert "(a broker may take no QoS 2: try --qos 1)" in done.stderr


@functools.cache
def measured(view: str) -> dict[str, dict[str, Any]]:
    """Every page, opened once for each view, with all that is folded open."""
    browser.needed()
    size, dark = _VIEWS[view]
    pages = {name: make().replace("<details>", "<details open>") for name, make in _PAGES.items()}
    return browser.measure(pages, size, dark=dark, select=("h1",))


@pytest.mark.parametrize("name", _PAGES)
@pytest.mark.parametrize("view", _VIEWS)
def test_a_page_in_a_browser(view: str, name: str) -> None:
    """It fits without scrolling sideways, can be read by day and night, fetches and runs nothing, is well formed."""
    shown = measured(view)[name]
    assert shown["scroll"] == shown["width"]
    assert shown["clipped"] == []
    assert shown["contrast"]["ratio"] >= _READABLE, shown["contrast"]
    assert (shown["fetched"], shown["scripts"], shown["untitled"], shown["lang"]) == ([], 0, 0, "en")
    assert shown["dark"] == _VIEWS[view][1]
    box = shown["boxes"]["h1"]
    assert 0 <= box["top"] < box["bottom"] <= shown["screen"]
    levels = [level for level, _ in shown["headings"]]
    assert levels[0] == 1
    assert set(levels[1:]) == {2}


def test_columns_stay_in_place_where_a_cell_is_empty() -> None:
    """On a desk each cell is under its head, whatever is empty before it; on a phone there is nothing where none is."""
    browser.needed()
    head, row = "thead tr :nth-child({})", "tbody tr:last-child > :nth-child({})"
    columns = range(1, 8)
    select = [each.format(number) for number in columns for each in (head, row)]
    # The table of stages: its last row has a mean and no percentile.
    stages = markup.table("stages", ("stage", *"abcde", "mean"), [["x", *"12345", "6"], ["rest", *[""] * 5, "0.3"]])
    pages = {"stages": page.document("t", stages)}
    wide = browser.measure(pages, (1280, 900), select=select)["stages"]["boxes"]
    for number in columns:
        top, under = wide[head.format(number)], wide[row.format(number)]
        assert (under["left"], under["right"]) == pytest.approx((top["left"], top["right"]), abs=0.5)
    small = browser.measure(pages, browser.PHONE, select=select)["stages"]["boxes"]
    widths = [small[row.format(number)]["right"] - small[row.format(number)]["left"] for number in columns]
    assert widths[0] > 0
    assert widths[1:-1] == [0] * 5
    assert widths[-1] > 0
