"""The report page in a real browser, on phones and on a desk, by day and by night."""

from __future__ import annotations

import functools
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support import browser, samplereports

from converters import reportpage

# A text of this ratio to its background is readable (WCAG 2.1, level AA).
_READABLE = 4.5
_VERDICT, _WHY = "h1", ".why"
# The last cell of the table of modes: why the last one may not ship.
_LAST = ".stacked tr:last-child td:last-child"
_VIEWS = {
    "phone": (browser.PHONE, False),
    "small phone by night": (browser.SMALL_PHONE, True),
    "desk": ((1280, 900), False),
}  # fmt: skip
# What a browser must object to; without it the measurements would prove nothing.
_BAD = (
    '<!DOCTYPE html><body style="background:#fff"><p style="color:#999">pale</p><svg></svg>'
    '<div style="width:900px">wide</div><div class="scroll" style="overflow:auto;width:80px;height:20px">'
    '<table><tr><td>near</td><td style="padding-left:90px">far</td></tr><tr><td>low</td></tr></table></div>'
    '<img src="http://example.invalid/a.png" onerror="1"><h3>late</h3></body>'
)


@functools.cache
def measured(view: str) -> dict[str, dict[str, Any]]:
    """Every sample, opened once for each view."""
    browser.needed()
    size, dark = _VIEWS[view]
    pages = {name: reportpage.page(make(), timings=True) for name, make in samplereports.ALL.items()}
    return browser.measure(pages, size, dark=dark, select=(_VERDICT, _WHY, _LAST))


@pytest.fixture(params=[(view, name) for view in _VIEWS for name in samplereports.ALL], ids=" / ".join)
def opened(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One report as one view shows it."""
    view, name = request.param
    return measured(view)[name]


def test_the_browser_objects_to_a_bad_page() -> None:
    """Seen are: a page that scrolls sideways, pale text, a fetched picture, a handler, a drawing without a title."""
    browser.needed()
    bad = browser.measure({"bad": _BAD}, select=(_VERDICT,))["bad"]
    assert bad["scroll"] > bad["width"]
    assert bad["contrast"]["ratio"] == pytest.approx(2.85, abs=0.01)
    assert bad["contrast"]["text"] == "pale"
    assert bad["clipped"] == ["scroll: far"]
    assert bad["scrollers"] == ["scroll"]
    assert bad["fetched"] == ["http://example.invalid/a.png"]
    assert (bad["scripts"], bad["untitled"], bad["lang"], bad["boxes"][_VERDICT]) == (2, 1, "", None)


def test_verdict_and_reason_are_in_the_first_screen(opened: dict[str, Any]) -> None:
    """Whether it may ship, and why, is seen without a touch."""
    for selector in (_VERDICT, _WHY):
        box = opened["boxes"][selector]
        assert 0 <= box["top"] < box["bottom"] <= opened["screen"]
        assert 0 <= box["left"] < box["right"] <= opened["width"]


def test_the_page_never_scrolls_sideways(opened: dict[str, Any]) -> None:
    """Wide tables scroll in their own box; names of a hundred characters break."""
    assert opened["scroll"] == opened["width"]


@functools.cache
def unfolded(size: tuple[int, int] = browser.PHONE) -> dict[str, dict[str, Any]]:
    """Every sample with all that is folded open."""
    browser.needed()
    pages = {name: reportpage.page(make(), timings=True) for name, make in samplereports.ALL.items()}
    opened = {name: page.replace("<details>", "<details open>") for name, page in pages.items()}
    return browser.measure(opened, size, select=(".tall", ".stacked", _LAST))


@pytest.mark.parametrize("name", samplereports.ALL)
def test_what_is_folded_fits_as_well(name: str) -> None:
    """Opened, no table makes the page wider, and the list of a graph's 400 ops scrolls in its own box."""
    page = unfolded()[name]
    assert page["scroll"] == page["width"]
    if name == "long":
        box = page["boxes"][".tall"]
        assert 100 < box["bottom"] - box["top"] <= 0.71 * page["screen"]


@pytest.mark.parametrize("size", [browser.PHONE, (768, 1024), (1280, 900)], ids=["phone", "tablet", "desk"])
@pytest.mark.parametrize("name", samplereports.ALL)
def test_no_cell_is_cut_off(name: str, size: tuple[int, int]) -> None:
    """No word of a table or a picture is out of sight at its side, and what scrolls at all says so in its title."""
    page = unfolded(size)[name]
    assert page["clipped"] == []
    assert [label for label in page["scrollers"] if "scrolls" not in label] == []


def test_a_phone_shows_a_mode_without_scrolling_sideways() -> None:
    """The table of modes is a block for each mode there: its last cell, which says why, is inside the screen."""
    boxes = unfolded()["automatic"]["boxes"]
    for selector in (".stacked", _LAST):
        assert 0 <= boxes[selector]["left"] < boxes[selector]["right"] <= browser.PHONE[0]
    desk = measured("desk")["automatic"]["boxes"]
    assert desk[_LAST]["left"] > 0.4 * _VIEWS["desk"][0][0]


def test_everything_can_be_read(opened: dict[str, Any]) -> None:
    """Every text, also in the pictures, stands out from what is behind it, by day and by night."""
    assert opened["contrast"]["ratio"] >= _READABLE, opened["contrast"]


def test_night_is_dark() -> None:
    """The small phone of these tests asks for the dark colours, the others do not."""
    assert [measured(view)["passing"]["dark"] for view in _VIEWS] == [False, True, False]


def test_nothing_is_fetched_and_nothing_can_run(opened: dict[str, Any]) -> None:
    """The browser asks for no other address, and there is nothing on the page that it could execute."""
    assert opened["fetched"] == []
    assert opened["scripts"] == 0


def test_readers_that_speak_find_their_way(opened: dict[str, Any]) -> None:
    """The language is set, one main heading comes first, no level is skipped, and every drawing has a title."""
    levels = [level for level, _ in opened["headings"]]
    assert opened["lang"] == "en"
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert opened["untitled"] == 0


def test_hostile_names_are_seen_as_they_are() -> None:
    """The browser shows a name with tags as text, in the page and in the tab."""
    page = measured("phone")["weird"]
    assert page["title"].startswith("</script><img src=x onerror=alert(1)>\"'gnp.exe[2J&amp; 1: may not ship")
    assert "</script><img src=x onerror=alert(1)>\"'gnp.exe[2J&amp;" in page["text"]


@pytest.mark.parametrize(("name", "good"), [("passing", True), ("refused", False)])
def test_screenshot_shows_the_verdict_at_once(name: str, good: bool, tmp_path: Path) -> None:
    """The picture of the first screen has the verdict's colour at its left edge: green ships, red does not."""
    browser.needed()
    file = tmp_path / "phone.png"
    browser.screenshot(reportpage.page(samplereports.ALL[name](), timings=True), file)
    with Image.open(file) as picture:
        red, green, _ = picture.convert("RGB").getpixel((15, 100))  # type: ignore[misc]  # typed as a number as well
    assert (green > 2 * red) if good else (red > 2 * green)
