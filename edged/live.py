"""The configuration read again while the daemon runs: what can change does, the rest waits for a restart."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from edged import config as configuration
from edged.config import Config
from edged.errors import ConfigError

log = logging.getLogger(__name__)

# The sections that take effect at once.
LIVE = ("metrics", "log_level", "drain_timeout_s")


def taken(old: Config, read: Callable[[], Config] | None) -> tuple[Config, list[str]]:
    """Return the configuration that holds from now on, and what changed, in words. read: reads the file again.

    Raises ConfigError, which is logged, when what was read is wrong: the old one stays.
    """
    try:
        new = old if read is None else read()
    except ConfigError as exc:
        log.error("configuration not taken, the old one stays:\n%s", exc)  # noqa: TRY400  # no traceback for a typo
        raise
    lines = [_told(line) for line in configuration.diff(old, new) or ["nothing changed"]]
    for line in lines:
        log.info("configuration: %s", line)
    changed = dataclasses.replace(old, **{name: getattr(new, name) for name in LIVE})
    logging.getLogger().setLevel(changed.log_level.upper())
    return changed, lines


def _told(line: str) -> str:
    at_once = line.startswith((*LIVE, "nothing")) and not line.startswith("metrics.prometheus")
    return line if at_once else f"{line} (takes effect at the next start)"
