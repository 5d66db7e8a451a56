"""Whether the broker's session of an earlier start may be taken up: only with the subscriptions it was left with.

MQTT keeps subscriptions with the session. After a stream is removed from the configuration the broker would go on
delivering its samples for ever, so a start with other filters begins with a clean session, once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)

FILE = "subscriptions.json"


def may_resume(state_dir: Path, filters: Iterable[str]) -> bool:
    """Return whether `filters` are those of the last start (or the first is made now), and remember them."""
    file, wanted = state_dir / FILE, sorted(filters)
    try:
        same = bool(json.loads(file.read_text()) == wanted)
    except FileNotFoundError:
        same = True
    except (OSError, ValueError, RecursionError) as exc:
        log.warning("%s cannot be read: %s; beginning with a clean session", file, exc)
        same = False
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(wanted))
    except OSError as exc:
        log.warning("%s cannot be written: %s", file, exc)
    return same
