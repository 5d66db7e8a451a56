"""Errors: the text of a person's mistake, the JSON of a request's failure, and the prefix old clients know it by."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edged.errors import (
    ERROR_PREFIX,
    RETRYABLE,
    BadDataError,
    Code,
    ConfigError,
    EdgedError,
    ExitCode,
    InternalError,
    RequestError,
    UnavailableError,
    UsageError,
)

ERRORS = st.builds(RequestError, st.sampled_from(Code), st.text(), st.none() | st.integers(0, 10**6))


@given(ERRORS)
def test_every_error_reply_begins_with_the_prefix(error: RequestError) -> None:
    """An MQTT 3.1.1 client tells errors by these bytes, whatever the message is."""
    assert error.to_json().startswith(ERROR_PREFIX)


@given(ERRORS)
def test_an_error_is_read_back(error: RequestError) -> None:
    """Code, message and waiting time survive the wire."""
    back = RequestError.from_json(error.to_json())
    assert (back.code, back.message, back.retry_after_ms) == (error.code, error.message, error.retry_after_ms)


def test_the_replys_keys_are_the_contracts() -> None:
    """Read by the json module alone."""
    body = json.loads(RequestError(Code.RESOURCE_EXHAUSTED, "queue full", 20).to_json())
    want = {"code": "RESOURCE_EXHAUSTED", "message": "queue full", "retryable": True, "retry_after_ms": 20}
    assert body == {"error": want}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"3",
        b"null",
        b"{}",
        b'{"error": 3}',
        b'{"error": "text"}',
        b'{"error": []}',
        b'{"error": {}}',
        b'{"error": {"code": "NOPE", "message": ""}}',
        b'{"error": {"code": {}, "message": ""}}',
        b'{"error": {"code": "INTERNAL"}}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_what_is_no_error_reply_is_a_value_error(payload: bytes) -> None:
    """A client may try any answer."""
    with pytest.raises(ValueError, match=r".*"):
        RequestError.from_json(payload)


def test_what_may_be_retried() -> None:
    """Only errors of the moment; a bad request stays bad."""
    retryable = {code for code in Code if RequestError(code, "").retryable}
    assert retryable == RETRYABLE == {Code.UNAVAILABLE, Code.RESOURCE_EXHAUSTED, Code.DEADLINE_EXCEEDED}


@pytest.mark.parametrize(
    ("kind", "code"),
    [(UsageError, 2), (BadDataError, 65), (UnavailableError, 69), (InternalError, 70), (ConfigError, 78)],
)
def test_exit_codes_are_those_of_sysexits(kind: type[EdgedError], code: int) -> None:
    """Scripts and service managers branch on these numbers."""
    assert kind("x", "y").exit_code == code
    assert isinstance(kind.exit_code, ExitCode)


def test_a_mistake_is_one_line() -> None:
    """where: what (hint), and no empty brackets."""
    assert str(UsageError("--port", "is 0", "1 to 65535")) == "--port: is 0 (1 to 65535)"
    assert str(UsageError("--port", "is 0")) == "--port: is 0"
