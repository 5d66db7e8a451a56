"""The four ways are counted apart and compared with each other, not only with the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from converters.demo import requests
from edged.errors import Code, RequestError

X, Y = np.zeros((4, 2, 3), np.float32), np.array([0, 1, 0, 1])


def ways(second: Any) -> dict[str, Any]:
    state = {"n": -1}

    def first(_window: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], float]:
        state["n"] += 1
        return np.array([0.6, 0.4]) if Y[state["n"] % 4] == 0 else np.array([0.4, 0.6]), 1.0 + state["n"]

    return {"first": first, "second": lambda _: second(state["n"])}


def test_equal_answers_are_right_and_not_different(capsys: pytest.CaptureFixture[str]) -> None:
    """Percentiles are numpy's nearest rank over all round trips, within 1 %; each pass reports one line."""
    found = requests.run(
        ways(lambda n: (np.array([0.6, 0.4][:: 1 if Y[n % 4] == 0 else -1]), 2.0)), X, Y, passes=2, period_s=0.0
    )
    second = found["second"]
    assert [second[key] for key in ("n", "right", "different", "errors", "few")] == [8, 8, 0, {}, True]
    assert second["p50_us"] == second["p99_us"] == second["max_us"] == 2000
    exact = np.percentile(np.arange(1.0, 9.0), [50, 90], method="inverted_cdf") * 1000
    np.testing.assert_allclose([found["first"]["p50_us"], found["first"]["p90_us"]], exact, rtol=0.01)
    assert found["first"]["max_us"] == 8000
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_an_answer_unlike_the_first_is_counted_even_when_its_class_is_right() -> None:
    """The class alone would hide a codec that loses digits."""
    found = requests.run(ways(lambda n: (np.array([0.7, 0.3][:: 1 if Y[n % 4] == 0 else -1]), 1.0)), X, Y, 1, 0.0)
    assert (found["second"]["right"], found["second"]["different"]) == (4, 4)


def test_an_error_is_counted_by_code_and_gives_no_round_trip() -> None:
    """A failed request does not lower the percentiles."""

    def fail(_n: int) -> None:
        raise RequestError(Code.DEADLINE_EXCEEDED, "late")

    found = requests.run(ways(fail), X, Y, 1, 0.0)
    assert (found["second"]["n"], found["second"]["errors"]) == (0, {"DEADLINE_EXCEEDED": 4})
    assert found["first"]["n"] == 4


def test_a_broken_way_ends_the_run_instead_of_waiting_for_every_deadline() -> None:
    """Five failures in a row are enough; a failure now and then is only counted."""
    count = {"asked": 0}

    def fail(_n: int) -> tuple[npt.NDArray[Any], float]:
        count["asked"] += 1
        if count["asked"] <= 5 and count["asked"] != 2:
            raise RequestError(Code.DEADLINE_EXCEEDED, "late")
        if count["asked"] == 2:
            return np.array([0.6, 0.4]), 1.0
        raise RequestError(Code.UNAVAILABLE, "gone")

    found = requests.run(ways(fail), X, Y, passes=25, period_s=0.0)
    assert count["asked"] == 7
    assert found["second"]["errors"] == {"DEADLINE_EXCEEDED": 4, "UNAVAILABLE": 2}
    assert found["first"]["n"] == 7
