"""`edged top` as text: what is shown, what is left out when the terminal is narrow, what machines get."""

from __future__ import annotations

import argparse
import json
import re
import sys

import numpy as np
import pytest

from edged.client.fleet import Fleet
from edged.client.metrics import parse_metrics, percentiles_of
from edged.client.status import parse_status
from edged.client.topcolumns import age, milliseconds
from edged.client.toptable import document, screen
from edged.clock import NS_PER_S, now_ns
from edged.commands import top
from edged.errors import UnavailableError, UsageError
from edged.latency import Histogram
from edged.transports import open_transport
from edged.transports.base import Message

STAGES = ("receive", "queue", "decode", "infer", "encode", "publish")


def _latency(n, p50):
    return {"n": n, "p50_us": p50, "p90_us": p50 * 2, "p99_us": p50 * 3, "p999_us": p50 * 4, "max_us": p50 * 5}


def _figures(requests, p50, n=200):
    stages = {stage: _latency(n, 10.0 * (i + 1)) for i, stage in enumerate(STAGES)}
    return {
        "requests": requests,
        "ok": requests - 3,
        "errors": {"INVALID_ARGUMENT": 3},
        "latency": {"total": _latency(n, p50), **stages},
    }


def _histogram():
    histogram = Histogram()
    for value in np.linspace(1e6, 2e6, 200):
        histogram.record(int(value))
    return histogram.encode()


def _metrics(device, boot="b", n=200, outbox=None, **more):
    model = {**more,
        "version": 7, "runtime": "ai-edge-litert 2.3.0", "delegate": "cpu", "queue": {"requests": 4, "bytes": 8},
        "since_start": _figures(5000, 1500.0, 4997), "interval": _figures(250, 680.0, n),
        "histograms": {"total": _histogram()},
    }  # fmt: skip
    body = {
        "format": 1, "device": device, "boot": boot, "seq": 1, "ts": 1.7e9, "interval_s": 10.0,
        "process": {"rss_bytes": 50 * 1024 * 1024, "cpu_s": 1.0}, "models": {"har": model},
        "transport": {} if outbox is None else {"outbox": outbox},
    }  # fmt: skip
    return Message(f"edged/v1/dev/{device}/metrics", json.dumps(body).encode())


def _status(device, state="ready", boot="b", **facts):
    models = {"har": {"state": "ready", "version": 7, "delegate": "cpu", "runtime": "ai-edge-litert 2.3.0"}}
    body = {
        "state": state,
        "boot": boot,
        "seq": 1,
        "ts": 1.7e9,
        "device": device,
        "version": "0.1.0",
        "models": models,
    } | facts
    return Message(f"edged/v1/dev/{device}/status", json.dumps(body).encode(), retain=True)


def _fleet(*messages):
    fleet = Fleet()
    for message in messages:
        fleet.take(message)
    return fleet


def _cells(line):
    return [cell for cell in line.split("  ") if cell.strip()]


def _table(fleet, **how):
    lines = screen(fleet, now_ns(), **{"stages": False, "width": None, **how})
    return dict(zip(map(str.strip, _cells(lines[0])), map(str.strip, _cells(lines[1])), strict=True)), lines


def test_row_shows_the_figures_of_the_message():
    """Every number of the payload is in its column, in ms, of the interval and since start."""
    row, _ = _table(_fleet(_status("press-07"), _metrics("press-07")))
    expected = {
        "DEVICE": "press-07", "STATE": "ready", "MODEL": "har", "VER": "7", "DELEGATE": "cpu",
        "RUNTIME": "ai-edge-litert 2.3.0",
        "REQ/S": "25.0", "P50ms": "0.680", "P90ms": "1.36", "P99ms": "2.04", "MAXms": "3.40",
        "P50all": "1.50", "P90all": "3.00", "P99all": "4.50", "MAXall": "7.50",
        "ERRall": "3", "QUEUE": "4", "RSS": "50M", "SEEN": "0s",
    }  # fmt: skip
    assert row == expected


def test_what_few_devices_have_is_shown_where_one_has_it():
    """Keys with a state, requests in an inference and answers that wait have columns where there are any to show."""
    batched = {"max": 8, "inferences": 4, "requests": 10}
    told = _metrics("a", keyed={"keys": 3, "max_keys": 64}, batched=batched, outbox={"waiting": 0, "bytes": 4096})
    row, _ = _table(_fleet(told))
    assert (row["BATCH"], row["KEYS"], row["OUTBOX"]) == ("2.5", "3", "0")
    header, a, b, *_ = screen(_fleet(told, _metrics("b")), now_ns(), stages=False, width=None)
    assert [line[header.index("KEYS") :][:4].strip() for line in (a, b)] == ["3", "-"]
    row, _ = _table(_fleet(_metrics("b", batched=batched | {"inferences": 0, "requests": 0})))
    assert not {"BATCH", "KEYS", "OUTBOX"} & row.keys()
    device = document(_fleet(told), now_ns())["devices"][0]
    assert (device["outbox_waiting"], device["outbox_bytes"]) == (0, 4096)
    assert (device["models"]["har"]["keys"], device["models"]["har"]["per_inference"]) == (3, 2.5)


@pytest.mark.parametrize("junk", [None, True, -1, 1e99, float("nan"), [], {}, "x", 10**400])
def test_junk_in_those_columns_is_nothing(junk):
    """What a stranger sends in their place shows no column and breaks nothing."""
    facts = {"keyed": {"keys": junk}, "batched": {"inferences": junk, "requests": junk}}
    row, _ = _table(_fleet(_metrics("a", outbox={"waiting": junk, "bytes": junk}, **facts)))
    assert not {"BATCH", "KEYS", "OUTBOX"} & row.keys()


def test_percentile_of_few_samples_says_so():
    """99 samples are marked and explained, 100 are not."""
    row, lines = _table(_fleet(_metrics("a", n=99)))
    assert (row["P50ms"], row["P90ms"], row["P99ms"], row["MAXms"]) == ("0.680*", "1.36*", "2.04*", "3.40")
    assert "* fewer than 100 samples" in lines
    row, lines = _table(_fleet(_metrics("a", n=100)))
    assert row["P99ms"] == "2.04"
    assert "* fewer than 100 samples" not in lines


def test_stage_rows():
    """With stages each model has one more row per stage, in order, with that stage's latencies."""
    _, lines = _table(_fleet(_metrics("a")), stages=True)
    found = [line.split() for line in lines[2:8]]
    assert [cells[0] for cells in found] == list(STAGES)
    assert found[3][1] == "0.040"  # infer: P50 of 40 us


def test_device_without_metrics_shows_what_its_status_says():
    """A device that has not measured yet is there with its models and no numbers."""
    row, _ = _table(_fleet(_status("a", "degraded", models={"har": {"state": "failed", "delegate": "cpu"}})))
    assert (row["STATE"], row["DELEGATE"], row["P99ms"], row["REQ/S"], row["SEEN"]) == (
        "failed",
        "cpu",
        "-",
        "-",
        "-",
    )


def _three(**facts):
    """A degraded device of three models, of which `b` says these facts."""
    models = {
        name: {"state": "ready", "delegate": "cpu", "degraded": "", "failovers": 0, "returns": 0} for name in "abc"
    }
    models["b"] |= facts
    return _status("press-07", "degraded", models=models, reason="b: " + str(facts.get("degraded")))


_WHY = "edgetpu: was killed by SIGSEGV, and answered 3 of 5 probes wrongly"


@pytest.mark.parametrize("width", [None, 120, 80, 60])
def test_what_is_wrong_stands_with_the_model_that_has_it(width):
    """One of three lost its accelerator: its row alone says so, the line below why and how often, at every width."""
    fleet = _fleet(_three(degraded=_WHY, failovers=2, returns=1))
    lines = screen(fleet, now_ns(), stages=True, width=width)
    header, a, b, _, c = (line.split() for line in lines[:5])
    assert [row[header.index("STATE")] for row in (a, b, c)] == ["ready", "degraded", "ready"]
    assert [row[header.index("DELEGATE")] for row in (a, b, c)] == ["cpu"] * 3
    assert lines[3].startswith("  2 failovers, 1 return; edgetpu: was killed")
    assert width is None or max(map(len, lines)) <= width
    assert (width in (80, 60)) == lines[3].endswith("…")
    assert sum("edgetpu" in line for line in lines) == 1


def test_eighty_columns_show_the_delegate():
    """A lost accelerator is seen on the usual terminal, with metrics that fill the other columns."""
    lines = screen(_fleet(_three(), _metrics("press-07", n=99)), now_ns(), stages=False, width=80)
    assert {"DELEGATE", "P50ms", "P99ms"} <= set(lines[0].split())


def test_a_model_that_came_back_tells_its_failovers():
    """All is well now, and was not: the counts stay visible, without a reason."""
    lines = screen(_fleet(_status("a", models={"m": {"state": "ready", "failovers": 1, "returns": 1}})), now_ns(),
                   stages=False, width=80)  # fmt: skip
    assert lines[2] == "  1 failover, 1 return"


@pytest.mark.parametrize(
    ("state", "models", "shown"),
    [
        ("degraded", {"m": {"state": "ready"}}, ["degraded/ready"]),
        ("degraded", {"m": {"state": "ready"}, "n": {"state": "failed"}}, ["ready", "failed"]),
        ("degraded", {"m": {"degraded": "x"}, "n": {}}, ["degraded", "-"]),
        ("stuck", {"m": {"state": "stuck"}, "n": {"state": "ready"}}, ["stuck", "ready"]),
        ("starting", {"m": {"state": "starting"}, "n": {"state": "ready", "degraded": "x"}}, ["starting", "degraded"]),
        ("lost", {"m": {"state": "ready", "degraded": "x"}}, ["lost/degraded"]),
        ("degraded", {}, ["degraded"]),
        ("ready", {"m": {"state": ["ready"], "degraded": 5}}, ["ready"]),
    ],
)
def test_a_devices_state_is_told_where_no_model_explains_it(state, models, shown):
    """Who is gone is gone with all its models; what nobody explains stands in every row."""
    lines = screen(_fleet(_status("a", state, models=models)), now_ns(), stages=False, width=None)
    assert [line.split()[1] for line in lines if line.startswith("a ")] == shown


def test_a_devices_own_reason_is_told_once():
    """Where no model has the state, the first row has the reason below it; a broker's word of an old boot has none."""
    models = {"m": {"state": "ready"}, "n": {"state": "ready"}}
    fleet = _fleet(_status("a", "draining", models=models, reason="told to stop"))
    lines = screen(fleet, now_ns(), stages=False, width=None)
    assert (lines[2], sum("told to stop" in line for line in lines)) == ("  told to stop", 1)
    assert screen(_fleet(_status("a", "draining", models={}, reason="why")), now_ns(), stages=False, width=None)[2] == (
        "  why"
    )


@pytest.mark.parametrize("junk", [None, True, -1, 1e99, float("nan"), [], {}, "\x1b[2J", 10**400])
def test_junk_below_a_row_is_nothing(junk):
    """Statuses come from strangers: what has another type is not there, and nothing moves the cursor."""
    facts = dict.fromkeys(("state", "reason", "degraded", "failovers", "returns"), junk)
    models = {"m": facts, "n": {"state": "degraded"}}
    lines = screen(_fleet(_status("a", "degraded", models=models)), now_ns(), stages=False, width=80)
    assert "".join(lines).isprintable()
    shown = [line.strip() for line in lines[1:5] if line.startswith("  ")]
    assert shown == (["[2J"] if isinstance(junk, str) else [])


def test_a_reason_without_end_is_clipped():
    """Where no terminal sets the width, a stranger's text does not fill the screen either."""
    lines = screen(_fleet(_three(degraded="x" * 10**5)), now_ns(), stages=False, width=None)
    assert max(map(len, lines)) < 200


def test_stale_device_is_marked():
    """Metrics that stopped coming are not shown as if they were of now."""
    fleet = _fleet(_status("a"), _metrics("a"))
    assert not any("(stale)" in line for line in screen(fleet, now_ns(), stages=False, width=None))
    later = now_ns() + 31 * NS_PER_S
    lines = screen(fleet, later, stages=False, width=None)
    assert "ready (stale)" in lines[1]
    assert lines[1].endswith("31s")


def test_lost_device_is_lost_not_stale():
    """The will of the current boot is the last word."""
    row, _ = _table(_fleet(_status("a"), _metrics("a"), _status("a", "lost")))
    assert row["STATE"] == "lost/ready"


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40, 10, 1])
def test_lines_fit_the_width(width):
    """Whatever the width, no line is longer; what matters most is left."""
    fleet = _fleet(_status("press-07"), _metrics("press-07"), _status("b" * 40, reason="x"))
    lines = screen(fleet, now_ns(), stages=True, width=width)
    assert max(map(len, lines)) <= width
    if width >= 80:
        assert {"DEVICE", "STATE", "MODEL", "P99ms"} <= set(lines[0].split())


def test_columns_go_by_importance():
    """The runtime goes before the percentiles since start, those before the interval's."""
    fleet = _fleet(_status("press-07"), _metrics("press-07"))
    full = len(screen(fleet, now_ns(), stages=False, width=None)[0])
    header = screen(fleet, now_ns(), stages=False, width=full - 1)[0]
    assert "RUNTIME" not in header
    assert "MAXall" in header
    header = screen(fleet, now_ns(), stages=False, width=90)[0]
    assert "MAXall" not in header
    assert "P99ms" in header


def test_fleet_lines_merge_the_devices():
    """The last lines give the latency of all devices together, and how many that is."""
    fleet = _fleet(_status("a"), _metrics("a"), _metrics("b"), _status("c"))
    (line,) = [
        line for line in screen(fleet, now_ns(), stages=False, width=None) if line.startswith("fleet since start")
    ]
    assert "2 of 3 devices" in line
    assert "n 400" in line
    assert "MAX 2.00 ms" in line


def test_ignored_messages_are_told():
    """What could not be read is counted on the screen."""
    fleet = _fleet(Message("edged/v1/dev/a/metrics", b"junk"), Message("edged/v1/dev/a/status", b"junk"))
    assert screen(fleet, now_ns(), stages=False, width=None)[-1] == "ignored messages: metrics 1, status 1"


def test_no_control_character_reaches_the_terminal():
    """Names come from the network: an escape sequence in one is shown without its escape."""
    evil = "\x1b]0;owned\x07\x9b2J\r\n"
    fleet = _fleet(
        _status("dev\x1b[2J", models={evil: {"state": evil, "delegate": evil}}),
        Message(
            "edged/v1/dev/x/metrics",
            json.dumps({"format": 1, "models": {evil: {"runtime": evil, "delegate": evil}}}).encode(),
        ),
    )
    text = "".join(screen(fleet, now_ns(), stages=True, width=None))
    assert text.isprintable()
    assert "]0;owned" in text


def test_document_holds_the_same_facts():
    """The JSON has each model's figures in microseconds and the fleet's percentiles."""
    found = json.loads(json.dumps(document(_fleet(_status("a"), _metrics("a")), now_ns())))
    (device,) = found["devices"]
    assert (device["device"], device["state"], device["stale"], device["version"]) == ("a", "ready", False, "0.1.0")
    model = device["models"]["har"]
    assert model["status"]["state"] == "ready"
    assert model["interval"]["latency"]["total"]["p99_us"] == 2040.0
    assert model["since_start"]["errors"] == {"INVALID_ARGUMENT": 3}
    assert found["fleet"]["since_start"]["latency"]["n"] == 200


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (None, "-"),
        (0.4, "0.000"),
        (12.3, "0.012"),
        (999.4, "0.999"),
        (1234, "1.23"),
        (45_678, "45.7"),
        (1_234_567, "1235"),
    ],
)
def test_milliseconds(value_us, text):
    """Three significant digits, down to a microsecond."""
    assert milliseconds(value_us) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0s"), (0.4, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_age(seconds, text):
    """The largest unit of which there are at least two."""
    assert age(seconds) == text


@pytest.fixture
def bus(request):
    """`edged top` on a bus in this process instead of a broker."""
    return f"loopback://{request.node.name}"


def _args(*words):
    parser = argparse.ArgumentParser()
    top.configure(parser)
    return parser.parse_args(list(words))


def _device(bus, *messages):
    device = open_transport(bus)
    device.start(lambda _message: None, [])
    for message in messages:
        device.publish(message)
    return device


def _retained(message):
    return Message(message.topic, message.payload, retain=True)


def test_once_prints_when_every_device_has_reported(bus, capsys):
    """Retained statuses name the devices; a stopped one is not waited for."""
    device = _device(bus, _status("a"), _status("b", "stopped"), _retained(_metrics("a")))
    assert top.run(_args("--broker", bus, "--once", "--json", "--wait", "20")) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(d["device"], d["state"]) for d in found["devices"]] == [("a", "ready"), ("b", "stopped")]
    assert found["devices"][0]["models"]["har"]["interval"]["requests"] == 250
    device.stop()


def test_once_as_text_has_no_escape_sequences(bus, capsys):
    """Not on a terminal the table is plain lines."""
    device = _device(bus, _status("a"), _retained(_metrics("a")))
    assert top.run(_args("--broker", bus, "--once")) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert text.startswith("DEVICE")
    device.stop()


def test_once_fits_a_terminal(bus, capsys, monkeypatch):
    """On a terminal the table is as wide as that; only elsewhere it has every column."""
    device = _device(bus, _status("a"), _retained(_metrics("a")))
    monkeypatch.setenv("COLUMNS", "80")
    for terminal in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)  # noqa: B023  # called in this round
        assert top.run(_args("--broker", bus, "--once")) == 0
        text = capsys.readouterr().out
        assert ("RUNTIME" in text, max(map(len, text.splitlines())) <= 80) == (not terminal, terminal)
    device.stop()


def test_once_without_any_device_is_unavailable(bus):
    """Nothing heard is an error that names what was waited for."""
    with pytest.raises(UnavailableError, match="press-07: nothing heard"):
        top.run(_args("--broker", bus, "--once", "--wait", "0.1", "--device", "press-07"))


def test_frame_fits_the_terminals_height(monkeypatch):
    """What does not fit is counted in the last line, and the screen is overwritten, not scrolled."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "12")
    fleet = _fleet(*(_status(f"d{i}") for i in range(40)))
    connection = top._Connection()
    connection.note(False, "broken\x1b")
    frame = top._frame(_args(), fleet, connection)
    assert frame.startswith("\x1b[H")
    assert frame.count("\n") == 11
    assert "more lines" in frame
    assert "no connection: broken" in frame


@pytest.mark.parametrize("words", [("--device", "a/b"), ("--broker", "http://x")])
def test_impossible_options_are_refused(words):
    """A mistake on the command line is told as such."""
    with pytest.raises(UsageError):
        top.run(_args(*words))


def test_no_broker_is_unavailable():
    """Without a broker the command ends with the reason."""
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        top.run(_args("--broker", "mqtt://127.0.0.1:1", "--connect-timeout", "0.3"))


def test_nobody_there_is_told():
    """An empty table says what is waited for."""
    assert screen(Fleet(), now_ns(), stages=False, width=None) == ["waiting for devices"]


def test_first_message_tells_its_interval_where_it_can():
    """Where a first message says that its interval holds all since start, its histogram is the interval's; else not."""
    (line,) = [line for line in screen(_fleet(_metrics("a")), now_ns(), stages=False, width=None) if "interval" in line]
    assert "1 of 1 devices  n 200  P50 1.50 ms" in line
    lines = screen(_fleet(_metrics("a", n=50)), now_ns(), stages=False, width=None)
    assert "fleet last interval:  not known yet  (needs two messages of a device)" in lines


@pytest.mark.parametrize("width", range(1, 130))
def test_numbers_are_never_cut(width):
    """A number that does not fit is left out whole, whatever the width; names are cut, and say so."""
    fleet = _fleet(_status("p" * 40), _metrics("p" * 40, n=99))
    whole = " ".join(screen(fleet, now_ns(), stages=True, width=None)).split()
    for line in screen(fleet, now_ns(), stages=True, width=width):
        assert len(line) <= width
        assert all(word in whole for word in line.split() if any(char.isdigit() for char in word) and "…" not in word)


def test_one_value_has_one_latency():
    """Bounds of buckets differ for one value; it is shown as one. No percentile is beyond the maximum."""
    for n, figures in ((1, (100.0, 100.9)), (7, (120.0, 100.0))):
        body = json.loads(bytes(_metrics("a").payload))
        total = body["models"]["har"]["interval"]["latency"]["total"]
        total |= {"n": n, "p50_us": figures[0], "p90_us": figures[0], "p99_us": figures[0], "max_us": figures[1]}
        found = parse_metrics(json.dumps(body).encode(), 1).models["har"].interval.total
        assert found.p50_us == found.p90_us == found.p99_us == found.max_us
    histogram = Histogram()
    histogram.record(1_000_000)
    later = histogram.copy()
    later.record(999_123)
    found = percentiles_of(later.since(histogram))
    assert (found.n, found.p50_us, found.p99_us, found.max_us) == (1, 999.123, 999.123, 999.123)


def test_models_are_cut_before_histograms_are_read(monkeypatch):
    """A message of 40,000 models costs what 64 cost: a histogram is a hundred times as large as its text."""
    decoded = []
    real = Histogram.decode
    monkeypatch.setattr(Histogram, "decode", lambda text: decoded.append(text) or real(text))
    body = json.loads(bytes(_metrics("a").payload))
    body["models"] = {f"m{i}": body["models"]["har"] for i in range(1000)}
    assert len(parse_metrics(json.dumps(body).encode(), 1).models) == len(decoded) == 64
    status = json.loads(bytes(_status("a").payload)) | {"models": {f"m{i}": {} for i in range(1000)}}
    assert len(parse_status(json.dumps(status).encode(), 1).models) == 64


def test_figures_beyond_all_sense_are_not_shown():
    """They would push the rest off the screen; names are cut where there is no width to cut them to."""
    body = json.loads(bytes(_metrics("a").payload))
    model = body["models"].pop("har")
    model["interval"]["latency"]["total"]["p99_us"] = 1e17
    model |= {"version": 10**17, "delegate": "d" * 1000}
    body |= {"interval_s": 1e17, "process": {"rss_bytes": 1e17}, "models": {"m" * 255: model}}
    row, _ = _table(_fleet(Message("edged/v1/dev/a/metrics", json.dumps(body).encode())))
    assert (row["P99ms"], row["VER"], row["REQ/S"], row["RSS"]) == ("-", "-", "-", "-")
    assert len(row["MODEL"]) == len(row["DELEGATE"]) == 64


@pytest.mark.parametrize("option", ["--wait", "--interval", "--connect-timeout"])
@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
def test_times_that_cannot_be_waited_for_are_refused(option, text, capsys):
    """They would end the waiting at once, never, or in a traceback."""
    with pytest.raises(SystemExit):
        _args(f"{option}={text}")
    assert re.search(rf"argument {option}: must be .* seconds, got '{text}'", capsys.readouterr().err)


def test_an_interval_of_nothing_is_refused(capsys):
    """It would fill the terminal, and keep a core busy."""
    with pytest.raises(SystemExit):
        _args("--interval=0")
    assert "--interval: must be more than 0" in capsys.readouterr().err
