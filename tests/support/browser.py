"""A real browser: Debian's chromium, without a window, which reads pages as a phone does and measures them.

A phone is a frame of 390x844 inside a page of our own: the browser's window cannot be made that narrow. What the page
measures inside its frames it writes into itself, and the browser prints the page.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support import require

PHONE = (390, 844)
SMALL_PHONE = (360, 640)
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    # Nothing but the file may be asked for; whatever is, fails and is counted.
    "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--disable-component-update",
    "--disable-extensions", "--run-all-compositor-stages-before-draw",
)  # fmt: skip
_HARNESS = Path(__file__).with_name("browser.js")


def needed() -> None:
    """Skip, in CI fail, without a chromium."""
    require.programs("chromium")


def measure(
    pages: Mapping[str, str], size: tuple[int, int] = PHONE, *, dark: bool = False, select: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Open each page in a frame of its own; return name → what was measured, see browser.js.

    select: CSS selectors whose boxes are told under `boxes` (None where nothing matches), in CSS pixels of the frame.
    """
    width, height = size
    frames = "".join(
        f'<iframe id="{html.escape(name)}" width="{width}" height="{height}" style="border:0"'
        f' srcdoc="{html.escape(page)}"></iframe>'
        for name, page in pages.items()
    )
    script = f"const SELECT = {json.dumps(list(select))};\n{_HARNESS.read_text()}"
    printed = _chromium(f"<!DOCTYPE html><body>{frames}<script>{script}</script></body>", "--dump-dom", dark=dark)
    found = re.search(r'<pre id="measured">(.*?)</pre>', printed, re.DOTALL)
    assert found, f"the browser measured nothing: {printed[-2000:]}"
    measured: dict[str, dict[str, Any]] = json.loads(html.unescape(found[1]))
    return measured


def screenshot(page: str, to: Path, size: tuple[int, int] = PHONE, *, dark: bool = False, top: int = 0) -> None:
    """Write a PNG of what `size` shows of the page, `top` CSS pixels down."""
    width, height = size
    frame = (
        f'<body style="margin:0;overflow:hidden"><iframe width="{width}" height="{height + top}"'
        f' style="border:0;margin-top:-{top}px" srcdoc="{html.escape(page)}"></iframe></body>'
    )
    # The window cannot be as narrow as a phone; the picture is.
    _chromium(frame, f"--screenshot={to}", f"--window-size={max(width, 500)},{height}", dark=dark)


def _chromium(page: str, *flags: str, dark: bool) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page, encoding="utf-8")
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        command = ["chromium", *_FLAGS, scheme, f"--user-data-dir={folder}/profile", *flags, file.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
