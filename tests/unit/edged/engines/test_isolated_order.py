"""What goes between an isolated engine and its child: the order arrives whole, errors arrive as what they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support import tinymodel

from delegates.base import Opening
from edged import bundle
from edged.affinity import ThreadPolicy
from edged.bundle import MODEL, MODEL_CPU, Bundle
from edged.engines import isolated_order
from edged.engines.base import EngineInfo
from edged.engines.candidate import Candidate
from edged.engines.isolated_order import Opened, Order
from edged.errors import BadDataError, UnavailableError


@pytest.fixture
def loaded(tmp_path: Path) -> Bundle:
    return bundle.read(tinymodel.write_int8_bundle(tmp_path / "b"))


def sent(order: Order) -> Order:
    return Order.read(order.written())


def test_an_order_arrives_whole(loaded: Bundle) -> None:
    """Manifest, model, candidate with its options, cache and policy."""
    candidate = Candidate.of("tflite-runtime", "external", {"library": "/x/ä.so", "options": {"a": "1"}}, 2)
    order = Order(loaded, candidate, Opening(Path("/c"), threads=2), ThreadPolicy((1, 2), "nice"))
    got = sent(order)
    assert got.bundle.manifest == loaded.manifest
    assert got.bundle.path == loaded.path
    assert got.bundle.files == {MODEL: loaded.model}
    assert (got.candidate, got.how, got.policy) == (candidate, order.how, order.policy)


def test_the_twin_goes_along(loaded: Bundle) -> None:
    """Of a model that is compiled for an accelerator: it tells how that is bound, and runs on the CPU."""
    both = Bundle(loaded.path, loaded.manifest, {MODEL: b"compiled", MODEL_CPU: b"twin"})
    got = sent(Order(both, Candidate("x"), Opening(), ThreadPolicy()))
    assert got.bundle.files == both.files


def test_nobody_can_change_an_order(loaded: Bundle) -> None:
    """What was verified is what is loaded."""
    fd = Order(loaded, Candidate("x"), Opening(), ThreadPolicy()).written()
    try:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 10)
    finally:
        os.close(fd)


def test_an_opening_is_told_as_it_is() -> None:
    """The engine's facts and what was achieved of the policy."""
    opened = Opened(EngineInfo("ai-edge-litert 2", "vx", 2, 3, 7, "partial"), "cpus 1, nice -20")
    assert isolated_order.understood(opened.message()) == opened


@pytest.mark.parametrize(
    "error",
    [
        BadDataError("b/model.tflite", "tensor 'x' is other", "made by whom?"), UnavailableError("runtime", "is gone"),
        ValueError("external: no such device"), OSError("libx.so: cannot open"), RuntimeError("Node number 3 failed"),
    ],
)  # fmt: skip
def test_an_error_arrives_as_what_it_was(error: Exception) -> None:
    """Class and text are those that the engine would raise in the daemon."""
    with pytest.raises(type(error)) as caught:
        isolated_order.understood(isolated_order.refusal(error))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)


def test_an_error_of_a_kind_that_is_not_told_is_a_runtime_error() -> None:
    """Whatever a library raises is one of those that `open_here` names; one without a text has its class for it."""
    with pytest.raises(RuntimeError, match=r"^MemoryError$"):
        isolated_order.understood(isolated_order.refusal(MemoryError()))
    with pytest.raises(OSError, match="No such file"):
        isolated_order.understood(isolated_order.refusal(FileNotFoundError(2, "No such file")))


def test_a_message_is_bounded() -> None:
    """It is one packet on a socket; of a long text the end is kept."""
    message = isolated_order.refusal(RuntimeError("x" * 1_000_000 + "the end"))
    assert len(message) < isolated_order.MAX_ANSWER
    with pytest.raises(RuntimeError, match=r"the end$"):
        isolated_order.understood(message)


def test_a_message_is_bounded_whatever_it_is_made_of() -> None:
    """Three long texts, of characters that JSON writes in twelve bytes; the end of each is kept."""
    long = "\N{GRINNING FACE}" * 100_000
    message = isolated_order.refusal(BadDataError(f"{long}there", f"{long}is wrong", f"{long}mend it"))
    assert len(message) < isolated_order.MAX_ANSWER
    with pytest.raises(BadDataError) as caught:
        isolated_order.understood(message)
    for told, end in ((caught.value.where, "there"), (caught.value.what, "is wrong"), (caught.value.hint, "mend it")):
        assert told.endswith(f"\N{GRINNING FACE}{end}")
