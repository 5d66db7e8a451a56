"""What was measured outlives the process, whole or not at all; what cannot be read is told and started afresh."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from delegates.select import Measured
from edged.selection import store as module
from edged.selection.store import FILE, Store

KEY = {"model": "m", "delegate": "vx", "threads": "1", "library": "a 1 2"}


def row(label: str = "vx", **more: object) -> Measured:
    return Measured(label, "r", "vx", 1, verdict="agrees", p50_us=1.5, **more)  # type: ignore[arg-type]


def test_another_process_reads_what_was_kept(tmp_path: Path) -> None:
    """Every field is as it was, and the row says that it was not measured now."""
    Store(tmp_path / "state").keep(KEY, row(worst=0.25, worst_what="sample 1"))
    assert Store(tmp_path / "state").row(KEY) == row(worst=0.25, worst_what="sample 1", kept=True)


@pytest.mark.parametrize("name", KEY)
def test_any_other_key_is_not_known(name: str, tmp_path: Path) -> None:
    """A single value that differs is enough."""
    store = Store(tmp_path)
    store.keep(KEY, row())
    assert store.row({**KEY, name: "other"}) is None


def test_a_later_measurement_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    """The library was touched: the file does not grow, and the old key is forgotten."""
    store = Store(tmp_path)
    store.keep(KEY, row())
    store.keep({**KEY, "library": "a 1 3"}, row())
    assert store.row(KEY) is None
    assert len(json.loads((tmp_path / FILE).read_text())["rows"]) == 1


def test_the_file_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more rows than the limit the oldest go."""
    monkeypatch.setattr(module, "MAX_ROWS", 3)
    store = Store(tmp_path)
    for number in range(5):
        store.keep({**KEY, "model": str(number)}, row())
    known = [store.row({**KEY, "model": str(number)}) is not None for number in range(5)]
    assert known == [False, False, True, True, True]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "[" * 100_000, '{"format": 2}', '{"rows": {"a": 1}}', '{"rows": {"a": {"key": {}, "row": {}}}}',
        '{"unknown": 1}', "\x00" * 100,
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_told_and_replaced(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut short, of another version or nonsense: one warning, and the next write makes it good."""
    (tmp_path / FILE).write_text(text)
    with caplog.at_level(logging.WARNING):
        store = Store(tmp_path)
    assert "starting afresh" in caplog.text
    store.keep(KEY, row())
    assert Store(tmp_path).row(KEY) is not None


def test_a_directory_that_cannot_be_written_is_no_obstacle(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file stands where the directory should be: told, and known as long as the process lives."""
    (tmp_path / "state").write_text("")
    store = Store(tmp_path / "state")
    store.keep(KEY, row())
    assert store.row(KEY) == row(kept=True)
    assert "cannot be written" in caplog.text


def test_nothing_is_left_of_a_write(tmp_path: Path) -> None:
    """The partial file is gone, whatever came of it."""
    Store(tmp_path).keep(KEY, row())
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_what_another_process_wrote_is_seen_when_asked(tmp_path: Path) -> None:
    """`refresh` reads the file again."""
    first, second = Store(tmp_path), Store(tmp_path)
    second.keep(KEY, row())
    assert first.row(KEY) is None
    first.refresh()
    assert first.row(KEY) is not None


def test_what_was_found_holds_while_the_machine_looks_the_same(tmp_path: Path) -> None:
    """Another look, another search."""
    Store(tmp_path).keep_found("today", ("edgetpu",))
    store = Store(tmp_path)
    assert store.found("today") == ("edgetpu",)
    assert store.found("tomorrow") is None


def test_libraries_are_remembered(tmp_path: Path) -> None:
    """So that a start can look at the file without a probe; "" is a delegate without one."""
    Store(tmp_path).keep_library("vx {}", "")
    assert Store(tmp_path).library("vx {}") == ""
    assert Store(tmp_path).library("gpu {}") is None
