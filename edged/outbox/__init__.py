"""Store and forward: answers of streams are kept on disk until the broker has them.

record   one answer ↔ bytes with a checksum
age      how old a record is, although clocks jump and boxes restart
reader   records of one file after the other, past what is damaged
journal  records in files of bounded size, a cursor, what is dropped when there is too much
handed   what the thread is given
sender   the thread: writes ahead, sends in order, a few at a time
"""

from __future__ import annotations

from edged.outbox.sender import Outbox

__all__ = ["Outbox"]
