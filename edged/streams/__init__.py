"""Windows over sensor topics: topic filter → key → samples → window → one request per full window → output topic.

samples     one payload → samples, or what is wrong with each
continuity  seq and time → go on, drop, or begin again
window      samples → full windows, preallocated
stream      the parts together: keys, requests, answers
"""

from __future__ import annotations

from edged.streams.stream import Stream

__all__ = ["Stream"]
