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


def may_resume(state_dir: Path, client_id: str, filters: Iterable[str]) -> bool:
    """Return whether `filters` are those of this client's last start (or it is its first), and remember them."""
    file, wanted = state_dir / FILE, sorted(filters)
    known = _read(file)
    if known is None:
        same, known = False, {}
    else:
        same = known.get(client_id, wanted) == wanted
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**known, client_id: wanted}))
    except OSError as exc:
        log.warning("%s cannot be written: %s", file, exc)
    return same


def _read(file: Path) -> dict[str, object] | None:
    """Return filters by client id; None when what is there cannot be read."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        log.warning("%s cannot be read: %s; beginning with a clean session", file, exc)
        return None
    return found if isinstance(found, dict) else None
