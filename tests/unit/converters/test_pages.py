"""Where a report goes, what it never touches, and what is said where it cannot be kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import samplereports, tinymodel

from converters import pages, place
from converters.options import Options
from edged import bundle
from edged.bundle import Manifest
from edged.errors import UnavailableError, UsageError


def options(folder: Path, report: str = "") -> Options:
    return Options(folder / "model", folder / "out", "m", 1, report=report and str(folder / report))


def put_bundle(path: Path) -> None:
    specs = (tinymodel.spec("x", (1, 3)),), (tinymodel.spec("y", (1, 2)),)
    made = Manifest(1, "m", 1, {}, "serving_default", *specs)
    place.write(path, made, {bundle.MODEL: tinymodel.dense_model(), bundle.REPORT: b"page"}, force=False)


def test_a_report_of_ours_is_replaced_and_removed(tmp_path: Path) -> None:
    """What a refusal left is written anew, and gone once the model passes; a report elsewhere takes its place."""
    given = options(tmp_path)
    for _ in range(2):
        pages.check(given)
        page = pages.keep_refused(given, samplereports.refused())
    assert {p.name for p in tmp_path.iterdir()} == {"out-refused.html", "out-refused.json"}
    assert "<title>" in page.read_text()
    kept = options(tmp_path, "r.html")
    pages.keep_passed(kept, samplereports.passing())
    pages.check(kept)
    assert {p.name for p in tmp_path.iterdir()} == {"r.html", "r.json"}
    assert json.loads((tmp_path / "r.json").read_text())["ships"]


@pytest.mark.parametrize("suffix", [".html", ".json"])
@pytest.mark.parametrize("report", ["r.html", ""])
@pytest.mark.parametrize("directory", [True, False])
def test_what_somebody_else_made_stays(tmp_path: Path, suffix: str, report: str, *, directory: bool) -> None:
    """Told before the work; what appears during it is left too, with nothing of ours beside it."""
    given = options(tmp_path, report)
    theirs = tmp_path / (f"r{suffix}" if report else f"out-refused{suffix}")
    if directory:
        theirs.mkdir()
    else:
        theirs.write_text('{"format": 1, "mine": true}')
    with pytest.raises(UsageError, match=f"{theirs.name} would be the report, but exists and is none of edged's"):
        pages.check(given)
    with pytest.raises(UnavailableError, match="has appeared meanwhile"):
        pages.keep_refused(given, samplereports.refused())
    if report:
        with pytest.raises(UnavailableError, match="has appeared meanwhile"):
            pages.keep_passed(given, samplereports.passing())
    else:
        pages.keep_passed(given, samplereports.passing())
    assert [p.name for p in tmp_path.iterdir()] == [theirs.name]
    assert directory or theirs.read_text() == '{"format": 1, "mine": true}'


def test_no_report_goes_into_a_bundle(tmp_path: Path) -> None:
    """Neither into the output, nor, by whatever way, into any other bundle: its hashes would not hold any more."""
    put_bundle(tmp_path / "good")
    (tmp_path / "good" / "deep").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "good")
    for name in ("good/report.html", "good/deep/x.html", "link/report.html"):
        with pytest.raises(UsageError, match="lies in the bundle"):
            pages.check(options(tmp_path, name))
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="lies in the output"):
        pages.check(options(tmp_path, "out/x.html"))
    taken = Options(tmp_path / "model", tmp_path / "o.json", "m", 1, report=str(tmp_path / "o.html"))
    with pytest.raises(UsageError, match="lies in the output"):
        pages.check(taken)
    assert bundle.read(tmp_path / "good").files[bundle.REPORT] == b"page"


def test_names_that_are_too_long_for_the_report(tmp_path: Path) -> None:
    """A bundle's name may be one that the report of a refusal cannot have: told before the work."""
    long = Options(tmp_path / "model", tmp_path / ("n" * 250), "m", 1)
    with pytest.raises(UsageError, match=r"n-refused\.html is a name of 263 bytes"):
        pages.check(long)
    with pytest.raises(UsageError, match="is a name of 257 bytes"):
        pages.check(options(tmp_path, "r" * 252 + ".html"))


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file finds no room: the first has not taken its name either, and the older report is whole."""
    given = options(tmp_path, "r.html")
    pages.keep_passed(given, samplereports.passing())
    before = (tmp_path / "r.html").read_bytes()
    real = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        if self.suffix == ".json":
            raise OSError(28, "No space left on device")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UnavailableError, match=r"r\.html: No space left"):
        pages.keep_passed(given, samplereports.refused())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.html", "r.json"]
    assert (tmp_path / "r.html").read_bytes() == before
