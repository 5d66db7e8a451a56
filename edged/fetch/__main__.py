"""One try to fetch, in a process of its own: `python -m edged.fetch` reads an order, and prints one JSON line.

`{"name"}` of the file or directory that is there now, or `{"error", "again"}`; again: another try may do better.
"""

from __future__ import annotations

import json
import os
import sys

from edged import childprocess
from edged.fetch import Order
from edged.fetch.sources import FetchError, fetch
from edged.shown import first_line

# Requests go before it, also where the daemon may not raise its own priority.
NICE = 10


def main() -> int:
    """Fetch what standard input orders; the answer goes to standard output, also when it cannot be had."""
    childprocess.die_with_parent()
    os.nice(NICE)
    order = Order.load(sys.stdin.read())
    try:
        answer: dict[str, object] = {"name": fetch(order)}
    except FetchError as exc:
        answer = {"error": str(exc), "again": exc.again}
    except Exception as exc:  # noqa: BLE001  # top of a process: an address that nobody can follow, in whatever words
        answer = {"error": f"cannot be fetched: {first_line(exc)}", "again": False}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
