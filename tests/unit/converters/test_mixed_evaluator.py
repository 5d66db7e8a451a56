"""The evaluator's child: many files, one process; a file that kills it costs one restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.tinymodel import add_model, dense_expected, dense_model, difference_model

from converters import loadtest
from converters.evaluator import Evaluator
from edged.engines.tflite_runtime import Runtime
from edged.errors import UnavailableError

_X = np.array([[[1, 2, 3]], [[-1, 0.5, 0.25]]], np.float32)
_KEY = "serving_default"


@pytest.fixture
def evaluator(runtime: Runtime, tmp_path: Path) -> Iterator[Evaluator]:
    """An evaluator on each runtime, with two samples of x[1, 3]."""
    loadtest.save(tmp_path / "inputs.npz", {"x": _X})
    with Evaluator(runtime.name, tmp_path / "inputs.npz", tmp_path / "files", limit_s=60) as made:
        yield made


def _pid(evaluator: Evaluator) -> int:
    assert evaluator._process is not None
    return evaluator._process.pid


def test_several_files_run_in_one_process(evaluator: Evaluator) -> None:
    """The answers are numpy's for both files, and no second child was started."""
    answers = evaluator.run(dense_model(), _KEY)
    np.testing.assert_allclose(answers["y"], np.stack([dense_expected(x) for x in _X]), rtol=1e-6)
    first = _pid(evaluator)
    np.testing.assert_array_equal(evaluator.run(add_model(3), _KEY)["y"], 2 * _X)
    assert _pid(evaluator) == first


def test_a_file_that_kills_the_runtime_costs_one_restart(evaluator: Evaluator) -> None:
    """A child that dies is told with its end, and the next file runs in a new one."""
    evaluator.run(dense_model(), _KEY)
    dead = _pid(evaluator)
    assert evaluator._process is not None
    evaluator._process.kill()
    evaluator._process.wait()
    with pytest.raises(UnavailableError, match="was killed by SIGKILL"):
        evaluator.run(dense_model(), _KEY)
    np.testing.assert_array_equal(evaluator.run(add_model(3), _KEY)["y"], 2 * _X)
    assert _pid(evaluator) != dead


def test_a_truncated_file_is_an_error_of_that_file(evaluator: Evaluator) -> None:
    """It kills one runtime and is refused by the other: an error in both cases, and the next file runs."""
    with pytest.raises(UnavailableError):
        evaluator.run(dense_model()[:300], _KEY)
    np.testing.assert_array_equal(evaluator.run(add_model(3), _KEY)["y"], 2 * _X)


def test_a_file_with_other_inputs_is_an_error_of_that_file(evaluator: Evaluator) -> None:
    """Samples and signatures that do not fit are told in words; the child lives on."""
    with pytest.raises(UnavailableError, match="does not run"):
        evaluator.run(difference_model(), _KEY)
    first = _pid(evaluator)
    with pytest.raises(UnavailableError, match="Invalid signature_key"):
        evaluator.run(add_model(3), "no_such_signature")
    assert _pid(evaluator) == first


def test_a_run_that_takes_too_long_is_ended(runtime: Runtime, tmp_path: Path) -> None:
    """No candidate may hang a search: the child is ended, and the error says after how long."""
    loadtest.save(tmp_path / "inputs.npz", {"x": _X})
    with Evaluator(runtime.name, tmp_path / "inputs.npz", tmp_path / "files", limit_s=1e-4) as hasty:
        with pytest.raises(UnavailableError, match="was not done after"):
            hasty.run(dense_model(), _KEY)
        assert hasty._process is None


def test_closing_ends_the_child(evaluator: Evaluator) -> None:
    """Nothing is left running when a search is over, and closing twice harms nothing."""
    evaluator.run(dense_model(), _KEY)
    process = evaluator._process
    evaluator.close()
    evaluator.close()
    assert process is not None
    assert process.poll() is not None
