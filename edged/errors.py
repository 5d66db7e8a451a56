"""Two kinds of error: a person's mistake (one line, an exit code) and a request's failure (an error reply).

`EdgedError` reaches the terminal as ``where: what (hint)`` and ends a command with its exit code.
`RequestError` reaches the requester as ``{"error": {...}}`` and never ends anything.
"""

from __future__ import annotations

import json
from enum import Enum, IntEnum


class ExitCode(IntEnum):
    """Process exit codes; the numbers are those of BSD sysexits.h."""

    OK = 0
    USAGE = 2
    BAD_DATA = 65
    UNAVAILABLE = 69
    INTERNAL = 70
    CONFIG = 78


class EdgedError(Exception):
    """A mistake a person can mend: where it is, what it is, and what to do."""

    exit_code = ExitCode.INTERNAL

    def __init__(self, where: str, what: str, hint: str = "") -> None:
        self.where, self.what, self.hint = where, what, hint
        super().__init__(f"{where}: {what}" + (f" ({hint})" if hint else ""))


class UsageError(EdgedError):
    """The command line asks for something that makes no sense."""

    exit_code = ExitCode.USAGE


class BadDataError(EdgedError):
    """A file or payload is not what it must be."""

    exit_code = ExitCode.BAD_DATA


class UnavailableError(EdgedError):
    """Something needed is not there: a broker, a library, a device."""

    exit_code = ExitCode.UNAVAILABLE


class InternalError(EdgedError):
    """A fault of ours or of a library below us."""

    exit_code = ExitCode.INTERNAL


class ConfigError(EdgedError):
    """A configuration is wrong. Carries every problem, one line each."""

    exit_code = ExitCode.CONFIG


class Code(str, Enum):
    """The canonical status codes of gRPC, as they stand in an error reply.

    Source: https://grpc.io/docs/guides/status-codes/ (names only; no gRPC here).
    """

    CANCELLED = "CANCELLED"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"


# The same request, sent again, may succeed.
RETRYABLE = frozenset({Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED})

# Every error reply begins with these bytes: an MQTT 3.1.1 client, which sees no `status` property,
# tells an error from an answer by them.
ERROR_PREFIX = b'{"error": {"code": '


class RequestError(Exception):
    """A request that cannot be answered; becomes an error reply."""

    def __init__(self, code: Code, message: str, retry_after_ms: int | None = None) -> None:
        self.code, self.message, self.retry_after_ms = code, message, retry_after_ms
        super().__init__(f"{code.value}: {message}")

    @property
    def retryable(self) -> bool:
        """Whether the same request, sent again, may succeed."""
        return self.code in RETRYABLE

    def to_json(self) -> bytes:
        """Return the error reply's payload (UTF-8 JSON beginning with `ERROR_PREFIX`)."""
        body = {
            "code": self.code.value,
            "message": self.message,
            "retryable": self.retryable,
            "retry_after_ms": self.retry_after_ms,
        }
        return json.dumps({"error": body}).encode()

    @classmethod
    def from_json(cls, payload: bytes) -> RequestError:
        """Rebuild the error from a reply's payload; raises ValueError when it is none."""
        try:
            body = json.loads(payload)["error"]
            return cls(Code(body["code"]), str(body["message"]), body.get("retry_after_ms"))
        except (AttributeError, LookupError, RecursionError, TypeError) as exc:
            msg = f"not an error reply: {exc}"
            raise ValueError(msg) from exc
