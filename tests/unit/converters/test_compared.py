"""The one figure by which modes are compared, of outputs made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from support import samplereports

from converters import compared
from converters.gates import Gate, OutputParity
from converters.report import Attempt


def attempt(*outputs: OutputParity, delegate: str = "default") -> Attempt:
    """One mode with these outputs on one runtime."""
    run = replace(samplereports.passing().shown.targets[1], outputs=outputs, delegate=delegate)
    return Attempt("int8", "passed", targets=(run,))


def output(figures: Mapping[str, float], name: str = "y", missed: Sequence[str] = ()) -> OutputParity:
    """An output with these figures; each has a gate, and those in `missed` fail theirs."""
    gates = (Gate(name, key, 0.5, 0.9 if key in missed else 0.1) for key in figures)
    return OutputParity(name, figures, tuple(gates))


@pytest.mark.parametrize(
    ("key", "values", "worst"),
    [
        ("mae", (1.0, 3.0, 2.0), (3.0, "o1")),
        ("agreement", (0.9, 0.5, 0.7), (0.5, "o1")),
        ("r2", (0.1, -4.0), (-4.0, "o1")),
    ],
)
def test_a_large_error_is_the_worst_and_a_small_agreement(
    key: str, values: tuple[float, ...], worst: tuple[float, str]
) -> None:
    """The side of each figure counts that is bad."""
    one = attempt(*(output({key: value}, f"o{n}") for n, value in enumerate(values)))
    assert compared.worst(one, key) == worst
    assert compared.deciding([one]) == key


def test_own_kernels_alone_do_not_count() -> None:
    """No device runs the file so."""
    assert compared.worst(attempt(output({"f1": 0.1}), delegate="reference"), "f1") is None


def test_nothing_measured_is_nothing_to_compare() -> None:
    """A mode that died has no figure."""
    assert compared.deciding([Attempt("int8", "died")]) == ""
    assert compared.worst(Attempt("int8", "died"), "f1") is None


def test_the_figure_that_all_modes_have_wins() -> None:
    """One that a single mode lacks cannot compare it, however much it says by itself."""
    assert (
        compared.deciding([attempt(output({"accuracy": 0.9, "cosine": 0.9})), attempt(output({"cosine": 0.8}))])
        == "cosine"
    )


def test_a_figure_that_cannot_stand_alone_is_taken_where_it_decides() -> None:
    """The largest error compares modes that miss its limit, and no others."""
    figures = {"max_abs": 3.0, "cosine": 0.9}
    assert compared.deciding([attempt(output(figures))]) == "cosine"
    assert compared.deciding([attempt(output(figures, missed=["max_abs"])), attempt(output(figures))]) == "max_abs"


def test_of_those_the_one_whose_limit_is_missed_wins() -> None:
    """Else the one that says most: what labels tell, before likenesses."""
    both = {"agreement": 0.9, "cosine": 0.8}
    assert compared.deciding([attempt(output(both))] * 2) == "agreement"
    assert compared.deciding([attempt(output(both)), attempt(output(both, missed=["cosine"]))]) == "cosine"
