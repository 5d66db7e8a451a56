"""Fixtures that every suite may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.brokers import require_iotcore, require_mosquitto
from support.tinymodel import require_runtime

from edged.broker import EmbeddedBroker
from edged.engines import tflite_runtime


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


@pytest.fixture(scope="module", params=["mosquitto", "iotcore"])
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """Each broker in turn."""
    {"mosquitto": require_mosquitto, "iotcore": require_iotcore}[request.param]()
    with EmbeddedBroker(request.param) as broker:
        yield broker
