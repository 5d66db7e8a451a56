"""What one user may ask for: the `<user>` level of the request topic, which the broker's access rules tie to the login.

A producer on the box is a user too, and not the one whose login is called like it: see `statekey`.

Held are only users with unanswered requests, so there are never more than there are requests in the queues.
"""

from __future__ import annotations

import threading

from edged.errors import Code, RequestError

RETRY_MS = 100


class Quota:
    """Counts the unanswered requests of each user, and knows how large a payload may be. Safe from any thread.

    max_requests: None for no limit. Each `enter` that did not raise is followed by one `leave`.
    """

    def __init__(self, max_requests: int | None = None, max_payload_bytes: int | None = None) -> None:
        self._max_requests, self._max_bytes = max_requests, max_payload_bytes
        self._unanswered: dict[str, int] = {}
        self._lock = threading.Lock()

    def check_size(self, size: int) -> None:
        """Raise RequestError INVALID_ARGUMENT when a payload of `size` bytes is more than anybody may send."""
        if self._max_bytes is not None and size > self._max_bytes:
            what = f"{size} bytes, a request may have {self._max_bytes}"
            raise RequestError(Code.INVALID_ARGUMENT, f"the payload is too large: {what}")

    def enter(self, user: str) -> None:
        """Count one request of `user`; raises RequestError RESOURCE_EXHAUSTED when too many are unanswered."""
        if self._max_requests is None:
            return
        with self._lock:
            count = self._unanswered.get(user, 0)
            if count < self._max_requests:
                self._unanswered[user] = count + 1
                return
        what = f"{count} requests of this user are unanswered, which is its limit"
        raise RequestError(Code.RESOURCE_EXHAUSTED, what, RETRY_MS)

    def leave(self, user: str) -> None:
        """Count one request of `user` as answered."""
        if self._max_requests is None:
            return
        with self._lock:
            count = self._unanswered.pop(user) - 1
            if count:
                self._unanswered[user] = count
