"""What is installed where, by the environment markers of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib")
requirements = pytest.importorskip("packaging.requirements")

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]


def _installed(dependencies: list[str], machine: str, python: str) -> dict[str, list[str]]:
    """Name → version specifiers of what applies on such a machine."""
    found: dict[str, list[str]] = {}
    for requirement in map(requirements.Requirement, dependencies):
        where = {"platform_machine": machine, "python_version": python}
        if requirement.marker is None or requirement.marker.evaluate(where):
            found.setdefault(requirement.name, []).append(str(requirement.specifier))
    return found


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "armv7l"])
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12"])
def test_tflite_runtime_comes_with_numpy_1(machine: str, python: str) -> None:
    """Built against numpy 1, it fails with numpy 2 at the first Interpreter; without it numpy is free."""
    base = _installed(PROJECT["dependencies"], machine, python)
    assert ("tflite-runtime" in base) == ("<2" in base["numpy"]) == (machine == "armv7l" and python != "3.12")
    extra = _installed(PROJECT["optional-dependencies"]["tflite"], machine, python)
    assert ("tflite-runtime" in extra) == ("<2" in extra.get("numpy", []))
