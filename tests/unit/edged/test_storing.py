"""The outbox is there where a stream asks for one, and costs nothing where none does."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

from support.sensorstream import config as stream_config

from edged import config as configuration
from edged.storing import Storing
from edged.transports.base import Message
from edged.transports.loopback import LoopbackBus, LoopbackTransport

TEXT = """
device: box
broker: {url: "mqtt://127.0.0.1"}
models: [{name: har, bundle: har}]
"""


def storing(directory: Path, *, store: bool) -> tuple[Storing, LoopbackTransport]:
    config = configuration.loads(TEXT, "test", directory)
    streams = (stream_config(name="plain"), stream_config(name="kept", store=store))
    transport = LoopbackTransport(LoopbackBus())
    return Storing(
        dataclasses.replace(config, streams=streams, state_dir=directory), transport, lambda: None
    ), transport


def test_without_a_stream_that_asks_there_is_none(tmp_path: Path) -> None:
    """Nothing to publish to, nothing told, no file."""
    made, transport = storing(tmp_path, store=False)
    stopped: list[float] = []
    made.start()
    assert (made.publish, made.facts(), made.state(), made.trouble()) == (None, {}, {}, "")
    made.stop(stopped.append, 1.5)
    assert stopped == [1.5]
    assert list(tmp_path.iterdir()) == []
    transport.stop()


def test_nothing_of_it_is_imported_before(tmp_path: Path) -> None:
    """A daemon without such streams does not load the room."""
    code = "import sys, edged.daemon; sys.exit(any(name.startswith('edged.outbox') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


def test_with_one_answers_go_through_the_state_directory(tmp_path: Path) -> None:
    """It is begun, told, and stopped around the transport: what is acknowledged last is noted."""
    made, transport = storing(tmp_path, store=True)
    transport.start(lambda _message: None, [])
    made.start()
    assert made.publish is not None
    assert made.publish(Message("edged/v1/dev/box/out/kept/a", b"x", 1), None)
    made.stop(transport.stop, 5)
    told = made.facts()["outbox"]
    assert isinstance(told, dict)
    assert (told["stored"], told["finished"], told["trouble"]) == (1, 1, "")
    assert made.state() == {"outbox": {"waiting": 0, "bytes": told["bytes"]}}
    assert (tmp_path / "outbox" / "cursor").exists()


def test_trouble_is_told_with_where_it_is(tmp_path: Path) -> None:
    """For the status: why answers are not kept."""
    (tmp_path / "outbox").write_text("in the way")
    made, transport = storing(tmp_path, store=True)
    transport.start(lambda _message: None, [])
    made.start()
    made.stop(transport.stop, 5)
    assert made.trouble() == "outbox: File exists"
