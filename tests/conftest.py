"""Fixtures that every suite may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.brokers import require_iotcore, require_mosquitto
from support.places import short_directory
from support.tinymodel import require_runtime

from edged.broker import EmbeddedBroker
from edged.engines import tflite_runtime

if TYPE_CHECKING:
    from support.shmbox import Box


@pytest.fixture(autouse=True, scope="session")
def _state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What daemons remember on this machine has no part in the tests, nor the other way round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(params=[runtime.name for runtime in tflite_runtime.RUNTIMES])
def runtime(request: pytest.FixtureRequest) -> tflite_runtime.Runtime:
    """Each TFLite runtime in turn; the one that is not installed is a skip that names it."""
    return require_runtime(request.param)


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[EmbeddedBroker]:
    """A real mosquitto on a free port, shared by the tests of one module."""
    require_mosquitto()
    with EmbeddedBroker("mosquitto") as broker:
        yield broker


@pytest.fixture
def alone() -> Iterator[EmbeddedBroker]:
    """A mosquitto of the test's own: what is retained there, and which daemons are called alike, is its matter."""
    require_mosquitto()
    with EmbeddedBroker("mosquitto") as broker:
        yield broker


@pytest.fixture
def socket_path() -> Iterator[Path]:
    """Where a Unix socket may be: in a short directory, since the path may have 107 bytes."""
    with short_directory() as directory:
        yield directory / "s"


@pytest.fixture
def box(socket_path: Path) -> Iterator[Box]:
    """A transport for local producers that listens there and keeps what it is sent."""
    from support.shmbox import Box

    box = Box(socket_path).start()
    yield box
    box.transport.stop(1)


@pytest.fixture(scope="module", params=["mosquitto", "iotcore"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """Each broker in turn."""
    {"mosquitto": require_mosquitto, "iotcore": require_iotcore}[request.param]()
    with EmbeddedBroker(request.param) as broker:
        yield broker
