"""`edged infer` without a broker: what a file becomes, what is printed, which exit code an error has."""

from __future__ import annotations

import argparse
import io
import json
import sys
import threading
import zipfile
from types import SimpleNamespace

import cbor2
import numpy as np
import pytest
from support.fakedevice import FakeTransport, answer, failure

from edged import Client
from edged.client import asked, inputfile, report
from edged.client.result import Result
from edged.commands import infer
from edged.errors import BadDataError, Code, EdgedError, RequestError, UsageError
from edged.meta import parse_meta
from edged.transports.base import Message

A = np.arange(6, dtype=np.float64).reshape(2, 3)
META = "v=3;path=local;delegate=cpu;q=12;i=345;o=y:float32:1x3"


# A .npy of 11 TiB, of which only the header is there.
_HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3000000000000), }\n"
HUGE = b"\x93NUMPY\x01\x00" + len(_HEADER).to_bytes(2, "little") + _HEADER


def _zip(name, content):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return str(path)

    return write


def test_npy_and_npz_files(tmp_path):
    """Arrays as numpy saved them, in the archive's order; --dtype converts them."""
    np.save(tmp_path / "a.npy", A)
    np.savez(tmp_path / "b.npz", z=A, a=A + 1)
    array, codec = inputfile.load(str(tmp_path / "a.npy"), None, "float32")
    np.testing.assert_array_equal(array, A)
    assert (array.dtype, codec) == (np.float32, None)
    arrays, codec = inputfile.load(str(tmp_path / "b.npz"), "json", None)
    assert (list(arrays), codec) == (["z", "a"], "json")
    np.testing.assert_array_equal(arrays["a"], A + 1)


@pytest.mark.parametrize("header", ["", "ax,ay,az\n", "\ufeffax,ay,az\n"])
def test_csv_files(write, header):
    """Rows of numbers as float32, with or without a header line."""
    array, _ = inputfile.load(write("a.csv", f"{header}1,2.5,-3\n4,5,6\n".encode()), None, None)
    assert array.dtype == np.float32
    assert array.tolist() == [[1, 2.5, -3], [4, 5, 6]]


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.jpg", "jpeg"),
        ("a.JPEG", "jpeg"),
        ("a.png", "png"),
        ("a.json", "json"),
        ("a.cbor", "cbor"),
        ("a.bin", "raw"),
        ("noext", "raw"),
    ],
)
def test_payload_files_go_as_they_are(write, name, codec):
    """The suffix names the codec."""
    assert inputfile.load(write(name, b"\xffbytes"), None, None) == (b"\xffbytes", codec)


def test_standard_input_needs_a_codec(monkeypatch):
    """Bytes of a pipe do not tell their format."""
    with pytest.raises(UsageError, match="--codec"):
        inputfile.load("-", None, None)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"{}")))
    assert inputfile.load("-", "json", None) == (b"{}", "json")


@pytest.mark.parametrize(
    ("name", "content", "codec", "dtype", "error"),
    [
        ("a.npy", b"junk", None, None, BadDataError),
        ("a.npz", b"junk", None, None, BadDataError),
        ("a.csv", b"h\n1\nx\n", None, None, BadDataError),
        ("a.csv", b"\xff", None, None, BadDataError),
        ("a.csv", b"", None, None, BadDataError),
        ("a.csv", b"ax,ay\n\n", None, None, BadDataError),
        ("a.npz", b"PK\x03\x04" + bytes(40), None, None, BadDataError),
        ("a.npy", HUGE, None, None, BadDataError),
        ("a.npz", _zip("x.npy", HUGE), None, None, BadDataError),
        ("a.npz", _zip("x.txt", b"text"), None, None, BadDataError),
        ("a.npy", None, None, "no-such-dtype", BadDataError),
        ("a.json", b"{}", "raw", None, UsageError),
        ("a.bin", b"", "xml", None, UsageError),
    ],
)
def test_unusable_files_are_told(write, name, content, codec, dtype, error):
    """Not the format its name says, an unknown dtype, a codec that it cannot travel in."""
    buffer = io.BytesIO()
    np.save(buffer, A)
    with pytest.raises(error):
        inputfile.load(write(name, buffer.getvalue() if content is None else content), codec, dtype)


def test_missing_file_is_told():
    """The path stands in the error."""
    with pytest.raises(BadDataError, match=r"nowhere\.npy"):
        inputfile.load("nowhere.npy", None, None)


def _result(payload=None, codec="raw", meta=META):
    values = np.array([[0.5, 2.5, np.nan]], np.float32)
    return Result(values.tobytes() if payload is None else payload, codec, parse_meta(meta), 3.25, 1)


def test_answer_for_a_person():
    """A row per output, then where the time went."""
    lines = report.lines(_result(), [3.25])
    assert lines[0].split() == ["OUTPUT", "DTYPE", "SHAPE", "VALUES"]
    assert lines[1].split() == ["y", "float32", "1x3", "0.5", "2.5", "nan"]
    assert lines[2] == "answered in 3.250 ms, version 3, local, cpu, queue 0.012 ms, infer 0.345 ms, sent again 1 time"
    assert len(lines) == 3


def test_long_outputs_are_summarised():
    """A thousand values are eight and the range; numpy gives the range."""
    values = np.arange(1000, dtype=np.int16)
    (line,) = report.lines(_result(values.tobytes(), meta="o=y:int16:1000"), [1.0])[1:2]
    assert "0 1 2 3 4 5 6 7 … (1000)  min 0  max 999" in line


def test_classes_beside_json_outputs_are_shown():
    """What a JSON reply says beside its outputs is part of the answer."""
    payload = json.dumps({"outputs": [[1.0]], "classes": {"y": [{"label": "walk", "score": 0.9}]}}).encode()
    result = _result(payload, "json", "o=y:float32:1x1")
    assert 'classes: {"y": [{"label": "walk", "score": 0.9}]}' in report.lines(result, [1.0])
    assert report.document(result, [1.0])["classes"]["y"][0]["label"] == "walk"


def test_answer_for_machines_is_valid_json():
    """NaN, which JSON cannot say, is null; the rest as it is."""
    text = json.dumps(report.document(_result(), [3.25]), allow_nan=False)
    found = json.loads(text)
    assert found["outputs"] == {"y": {"dtype": "float32", "shape": [1, 3], "values": [[0.5, 2.5, None]]}}
    assert (found["meta"]["version"], found["round_trip_ms"], found["resends"]) == (3, 3.25, 1)


def test_percentiles_of_repeated_requests():
    """Nearest rank over all round trips, against numpy's; fewer than 100 say so."""
    times = list(np.random.default_rng(3).gamma(2, 3, 150))
    found = report.latency(times)
    assert found["p50_ms"] == pytest.approx(np.percentile(times, 50, method="inverted_cdf"), abs=0.001)
    assert found["p99_ms"] == pytest.approx(np.percentile(times, 99, method="inverted_cdf"), abs=0.001)
    assert (found["n"], found["max_ms"]) == (150, pytest.approx(max(times), abs=0.001))
    assert "fewer" not in report.lines(_result(), times)[-1]
    assert "n 99 " in report.lines(_result(), times[:99])[-1]
    assert "fewer than 100 samples" in report.lines(_result(), times[:99])[-1]


def _run(monkeypatch, transport, path, *words):
    """`edged infer` on a transport in memory."""
    parser = argparse.ArgumentParser()
    infer.configure(parser)

    def make(_url, *, devices, user, **_options):
        return Client(transport=transport, user=user, devices=devices, resend_s=10)

    monkeypatch.setattr(infer, "Client", make)
    return infer.run(parser.parse_args(["--device", "press-07", "--model", "har", "--user", "line", *words, path]))


def _echo(transport, request):
    transport.deliver(answer(request, bytes(request.payload), user=(("status", "ok"), ("meta", META))))


def test_command_prints_the_answer(monkeypatch, capsys, tmp_path):
    """File in, table out; with --json one document; --count asks that often."""
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3]], np.float32))
    path, transport = str(tmp_path / "x.npy"), FakeTransport(_echo)
    assert _run(monkeypatch, transport, path) == 0
    assert "1 2 3" in capsys.readouterr().out
    assert _run(monkeypatch, FakeTransport(_echo), path, "--json", "--count", "5") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"]["y"]["values"] == [[1, 2, 3]]
    assert (found["device"], found["model"], found["latency"]["n"]) == ("press-07", "har", 5)


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("INVALID_ARGUMENT", 65),
        ("FAILED_PRECONDITION", 65),
        ("UNIMPLEMENTED", 65),
        ("NOT_FOUND", 69),
        ("UNAVAILABLE", 69),
        ("RESOURCE_EXHAUSTED", 70),
        ("INTERNAL", 70),
    ],
)
def test_exit_code_tells_whose_fault_it_was(monkeypatch, write, code, exit_code):
    """Bad input 65, nobody or nothing there 69, all else 70."""
    transport = FakeTransport(lambda t, r: t.deliver(failure(r, RequestError(Code(code), "what happened"))))
    with pytest.raises(EdgedError, match=r"press-07/har: .*what happened") as caught:
        _run(monkeypatch, transport, write("x.bin", b"x"))
    assert caught.value.exit_code == exit_code


@pytest.mark.parametrize("state", ["lost", "stopped", "ready", None])
def test_silence_is_unavailable_whatever_the_device_said(monkeypatch, write, state):
    """No answer in time is 69; the error tells the state, also one that comes after the deadline."""
    monkeypatch.setattr(infer, "_STATUS_WAIT_S", 2 if state else 0.01)
    status = Message("edged/v1/dev/press-07/status", json.dumps({"state": state, "boot": "b"}).encode())

    def silent(transport, request):
        if state is not None:
            threading.Timer(0.1, transport.deliver, [status]).start()

    told = f"sent 1 time, .*{state or 'told no state'}.*--user must be the login"
    with pytest.raises(EdgedError, match=told) as caught:
        _run(monkeypatch, FakeTransport(silent), write("x.bin", b"x"), "--deadline-ms", "30")
    assert caught.value.exit_code == 69


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ((), "input 'x': expected float32, got float64", "try --dtype float32"),
        ((), "input 'x': expected shape [1, 3], got [3, 1]", ""),
        (("--dtype", "float64"), "input 'x': expected float32, got float64", ""),
    ],
)
def test_another_dtype_is_told_with_what_to_do(monkeypatch, write, words, message, hint):
    """The device says what it wants; the command says how to send it, unless a dtype was asked for."""
    error = RequestError(Code.INVALID_ARGUMENT, message)
    transport = FakeTransport(lambda t, r: t.deliver(failure(r, error)))
    with pytest.raises(BadDataError) as caught:
        _run(monkeypatch, transport, write("x.bin", b"x"), *words)
    assert caught.value.hint == hint


def test_names_of_an_archive_travel(monkeypatch, tmp_path):
    """The arrays of a .npz go by name, in whatever order they lie; a .npy goes as npy."""
    np.savez(tmp_path / "x.npz", z=A, a=A + 1)
    np.save(tmp_path / "x.npy", A)
    transport = FakeTransport(lambda t, r: t.deliver(answer(r, b"\xa1\x67outputs\xa1\x61y\x81\x01")))
    _run(monkeypatch, transport, str(tmp_path / "x.npz"))
    (request,) = transport.published
    assert request.content_type == "application/cbor"
    assert {name: tag.value[1].value for name, tag in cbor2.loads(bytes(request.payload))["inputs"].items()} == {
        "z": A.tobytes(),
        "a": (A + 1).tobytes(),
    }
    transport = FakeTransport(_echo)
    _run(monkeypatch, transport, str(tmp_path / "x.npy"))
    assert transport.published[0].content_type == "application/x-npy"


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "1e9"])
def test_times_that_cannot_be_waited_for_are_refused(monkeypatch, write, text, capsys):
    """On the command line as in the SDK."""
    with pytest.raises(SystemExit):
        _run(monkeypatch, FakeTransport(_echo), write("x.bin", b"x"), f"--connect-timeout={text}")
    assert f"argument --connect-timeout: must be 0 to 86400 seconds, got '{text}'" in capsys.readouterr().err
    with pytest.raises(UsageError, match="0 to 86400 seconds"):
        asked.seconds("a time", float(text))


def test_whatever_is_answered_is_a_json_document():
    """Complex numbers are pairs, NaN beside the outputs is null, and what JSON has no form for is text."""
    stream = io.BytesIO()
    np.save(stream, np.array([1 + 2j, complex("nan")]))
    found = report.document(_result(stream.getvalue(), "npy", ""), [1.0])
    assert json.loads(json.dumps(found, allow_nan=False))["outputs"]["output_0"]["values"] == [[1, 2], [None, 0]]
    found = report.document(_result(b'{"outputs": [1], "x": [NaN, {"y": Infinity}]}', "json"), [1.0])
    assert json.loads(json.dumps(found, allow_nan=False))["x"] == [None, {"y": None}]
    found = report.document(_result(b"\xa2\x67outputs\xa1\x61y\x81\x01\x61x\x42ab", "cbor"), [1.0])
    assert json.loads(json.dumps(found))["x"] == "b'ab'"


def test_no_control_character_of_a_reply_reaches_the_terminal():
    """Names and facts come from the network."""
    result = _result(b'{"outputs": {"\\u001b[2J": [1]}, "\\u009b": "\\u202e"}', "json", "path=%1b;delegate=%1b")
    assert all(line.isprintable() for line in report.lines(result, [1.0]))


def test_count_must_be_one_at_least(monkeypatch, write, capsys):
    """Asking nought times is a mistake."""
    with pytest.raises(SystemExit):
        _run(monkeypatch, FakeTransport(_echo), write("x.bin", b"x"), "--count", "0")
    assert "argument --count: must be a whole number from 1, got '0'" in capsys.readouterr().err
