"""Limits of one user: how many requests, how large, and that nothing is held of those who have none."""

from __future__ import annotations

import threading

import pytest

from edged.errors import Code, RequestError
from edged.quota import Quota


def refused(quota: Quota, user: str) -> bool:
    try:
        quota.enter(user)
    except RequestError as error:
        return error.code is Code.RESOURCE_EXHAUSTED and bool(error.retry_after_ms)
    return False


def test_each_user_has_its_own_count() -> None:
    """One that asks too much is refused, another one is not; an answer makes room for exactly one more."""
    quota = Quota(max_requests=2)
    assert [refused(quota, "ann") for _ in range(4)] == [False, False, True, True]
    assert not refused(quota, "bob")
    quota.leave("ann")
    assert [refused(quota, "ann") for _ in range(2)] == [False, True]


def test_a_user_without_unanswered_requests_costs_nothing() -> None:
    """A hundred thousand users that came and went are not remembered."""
    quota = Quota(max_requests=1)
    for number in range(100_000):
        quota.enter(str(number))
        quota.leave(str(number))
    assert quota._unanswered == {}


def test_a_payload_has_a_size_at_most() -> None:
    """INVALID_ARGUMENT: it will not be taken later either."""
    quota = Quota(max_payload_bytes=10)
    quota.check_size(10)
    with pytest.raises(RequestError, match="11 bytes, a request may have 10") as caught:
        quota.check_size(11)
    assert (caught.value.code, caught.value.retryable) == (Code.INVALID_ARGUMENT, False)


def test_without_limits_nothing_is_counted() -> None:
    """The default: nobody is refused, nothing is held."""
    quota = Quota()
    assert not any(refused(quota, "ann") for _ in range(1000))
    quota.check_size(1 << 40)
    quota.leave("ann")
    assert quota._unanswered == {}


def test_threads_do_not_lose_counts() -> None:
    """Requests come on one thread and are answered on others: at the end all are gone."""
    quota = Quota(max_requests=1_000_000)

    def work() -> None:
        for _ in range(5000):
            quota.enter("ann")
            quota.leave("ann")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert quota._unanswered == {}
