"""What was measured outlives the process, whole or not at all; what cannot be read is told and started afresh."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from delegates.select import Measured
from edged.selection import store as module
from edged.selection.key import Installed
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
        "", "{", "[]", "[" * 100_000, '{"format": 1}', '{"rows": {"a": 1}}', '{"rows": {"a": {"key": {}, "row": {}}}}',
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p50_us", -5.0), ("p99_us", float("nan")), ("open_ms", float("inf")), ("rss_bytes", -1), ("samples", 10**400),
        ("worst", -0.5), ("nodes_taken", 5), ("nodes_total", 5), ("first_ms", 1e300),
    ],
)  # fmt: skip
def test_figures_that_no_measurement_finds_are_not_used(
    name: str, value: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody edited the file: told, and measured again."""
    Store(tmp_path).keep(KEY, row())
    told = json.loads((tmp_path / FILE).read_text())
    for kept in told["rows"].values():
        kept["row"][name] = value
    (tmp_path / FILE).write_text(json.dumps(told))
    assert Store(tmp_path).row(KEY) is None
    assert f".row.{'nodes_taken' if 'nodes' in name else name}: must be " in caplog.text


def test_an_error_without_measure_is_kept(tmp_path: Path) -> None:
    """Of a delegate that answers rubbish, as a share of its tolerance."""
    Store(tmp_path).keep(KEY, row(worst=1e300, nodes_taken=5, nodes_total=5))
    assert Store(tmp_path).row(KEY) == row(worst=1e300, nodes_taken=5, nodes_total=5, kept=True)


def test_a_named_pipe_is_not_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nor is a file read that is larger than any of ours; the next write puts a file in its place."""
    os.mkfifo(tmp_path / FILE)
    store = Store(tmp_path)
    assert "it is no regular file; starting afresh" in caplog.text
    store.keep(KEY, row())
    assert Store(tmp_path).row(KEY) is not None
    with (tmp_path / FILE).open("ab") as file:
        file.truncate(module.MAX_BYTES + 1)
    assert Store(tmp_path).row(KEY) is None


def test_what_is_forgotten_is_gone_for_every_key_of_the_candidate(tmp_path: Path) -> None:
    """And of no other one; the file is not written where nothing is known."""
    store = Store(tmp_path)
    store.keep(KEY, row())
    store.keep({**KEY, "threads": "2"}, row())
    store.forget({**KEY, "library": "b"})
    assert Store(tmp_path).keys() == [{**KEY, "threads": "2"}]
    written = (tmp_path / FILE).stat().st_ino
    store.forget(KEY)
    assert (tmp_path / FILE).stat().st_ino == written


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


def test_what_a_probe_told_is_remembered(tmp_path: Path) -> None:
    """So that a start can look at the files without a probe."""
    told = Installed("/lib/libvx.so", "1.0", "/dev/galcore", ("/lib/libovx.so",))
    Store(tmp_path).keep_installed("vx {}", told)
    assert Store(tmp_path).installed("vx {}") == told
    assert Store(tmp_path).installed("gpu {}") is None


def test_what_is_known_is_not_written_again(tmp_path: Path) -> None:
    """Flash wears out, and a probe tells the same at each start."""
    store = Store(tmp_path)
    store.keep_installed("vx {}", Installed("a"))
    written = (tmp_path / FILE).stat().st_ino
    store.keep_installed("vx {}", Installed("a"))
    assert (tmp_path / FILE).stat().st_ino == written
    store.keep_installed("vx {}", Installed("b"))
    assert (tmp_path / FILE).stat().st_ino != written
