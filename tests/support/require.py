"""What a test needs and may not find: a skip on a laptop, a failure in CI, where everything has to be there."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import NoReturn

import pytest

from edged.engines import tflite_runtime


def missing(what: str) -> NoReturn:
    """Skip; in CI fail."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} must be installed here")
    pytest.skip(f"{what} is not installed")


def packages(*names: str) -> None:
    """Need importable packages; none of them is imported."""
    for name in names:
        if find_spec(name) is None:
            missing(name)


def programs(*names: str) -> None:
    """Need programs on the path."""
    for name in names:
        if shutil.which(name) is None:
            missing(name)


def any_runtime() -> None:
    """Need a TFLite runtime, whichever."""
    if not any(runtime.installed for runtime in tflite_runtime.RUNTIMES):
        missing("a TFLite runtime")
