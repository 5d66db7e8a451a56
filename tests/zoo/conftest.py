"""Marks every test here as of the zoo, gives it time, and ends the run with the table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from support import require, zoobare, zootable

_HERE = Path(__file__).parent
# For the first test of a model: its recipe and its conversions.
_TIMEOUT_S = 900


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of this directory."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.zoo)
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    for number, line in enumerate(zootable.lines()):
        if number == 0:
            terminalreporter.section("the zoo, P50 on ai-edge-litert")
        terminalreporter.write_line(line)


@pytest.fixture(params=["ai-edge-litert", "tflite-runtime"])
def bare(request: pytest.FixtureRequest) -> str:
    """Each runtime in turn, by name."""
    if request.param not in zoobare.installed():
        require.missing(request.param)
    return str(request.param)
