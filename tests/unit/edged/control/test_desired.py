"""The message on desired/models: what is right is read, what is wrong is told with its place, every mistake at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edged.control import desired

SHA = "0" * 64
WISH = {"name": "har", "url": "https://host/har-5.tar", "sha256": SHA}
KNOWN = ["har", "faces"]


def parsed(body: Any) -> desired.Desired:
    return desired.parse(json.dumps(body).encode(), KNOWN)


def test_a_message_is_read() -> None:
    """Every key; the version may be left out, and so may every model."""
    body = {"rev": 7, "models": [WISH, {**WISH, "name": "faces", "version": 5}]}
    found = parsed(body)
    assert (found.rev, [(wish.name, wish.version) for wish in found.models]) == (7, [("har", None), ("faces", 5)])
    assert parsed({"rev": 0, "models": []}).models == ()


@pytest.mark.parametrize(
    "url",
    [
        "http://h/x",
        "http://h.example./x",
        f"http://{'a' * 63}.example/x",
        "https://h:8/x?sig=1",
        "file:///srv/x.tar",
        "/srv/x",
        "http://[::1]/x",
    ],
)
def test_addresses_that_may_be_given(url: str) -> None:
    """http(s), file, and an absolute path."""
    assert parsed({"rev": 1, "models": [{**WISH, "url": url}]}).models[0].url == url


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "ftp://h/x"}, "must be http://, https://, file:/// or an absolute path"),
        ({"url": "srv/x.tar"}, "must be http://, https://, file:/// or an absolute path"),
        ({"url": "https://"}, "must be http://, https://, file:/// or an absolute path"),
        ({"url": "file://host/x"}, "must be file:///absolute/path"),
        ({"url": "https://ann:hush@h/x"}, "must not hold a login"),
        ({"url": "https://h/a b"}, "must be plain ASCII without blanks"),
        ({"url": "https://h/\r\nx"}, "must be plain ASCII without blanks"),
        ({"url": "https://h:99999/x"}, "is no address"),
        ({"url": "/srv/x\0y"}, "must be a path without NUL"),
        ({"url": "file:///%00x"}, "must be a path without NUL"),
        ({"url": "/srv/\ud800"}, "must be a path without NUL and lone surrogates"),
        ({"url": f"http://{'a' * 64}.example/x"}, "parts are of 1 to 63 characters"),
        ({"url": "http://a..example/x"}, "parts are of 1 to 63 characters"),
        ({"url": "/srv/" + "x" * 4096}, "must have at most 4096 characters"),
    ],
)
def test_addresses_that_may_not(change: dict[str, str], said: str) -> None:
    """Told without the address, which may hold a secret."""
    with pytest.raises(ValueError, match=r"^models\[0\]\.url: ") as caught:
        parsed({"rev": 1, "models": [{**WISH, **change}]})
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"models": []}, "rev: required key is missing"),
        ({"rev": "7", "models": []}, "rev: expected a whole number, got '7'"),
        ({"rev": True, "models": []}, "rev: expected a whole number, got true"),
        ({"rev": -1, "models": []}, "rev: must be at least 0, got -1"),
        ({"rev": 1, "models": [], "modles": []}, "modles: unknown key (did you mean 'models'?)"),
        ({"rev": 1, "models": {}}, "models: expected a list, got a mapping"),
        ({"rev": 1, "models": [{**WISH, "sha": SHA}]}, "models[0].sha: unknown key (did you mean 'sha256'?)"),
        ({"rev": 1, "models": [{**WISH, "sha256": "ab"}]}, "models[0].sha256: must be 64 lower-case hex"),
        ({"rev": 1, "models": [{**WISH, "version": "5"}]}, "models[0].version: expected"),
        ({"rev": 1, "models": [WISH, WISH]}, "models[1].name: 'har' is named twice"),
        ({"rev": 1, "models": [{**WISH, "name": "hra"}]}, "models[0].name: no model is called 'hra' (did you"),
        ([], "$: expected a mapping, got a list"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_place(body: Any, said: str) -> None:
    """Where, and what."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is compared
        parsed(body)
    assert said in str(caught.value)


def test_every_mistake_is_told_at_once() -> None:
    """Two models, two mistakes."""
    body = {"rev": 1, "models": [{**WISH, "sha256": "x"}, {"name": "faces", "url": "x", "sha256": SHA}]}
    with pytest.raises(ValueError, match=r"models\[0\]\.sha256: .*; models\[1\]\.url: "):
        parsed(body)


SMALL = 2000


@pytest.mark.parametrize(
    "payload",
    [
        b'{"rev": 1, "models": [' + b",".join([b"{}"] * 340_000) + b"]}",
        b'{"rev": 1, "models": [' + b",".join([b"{}"] * 900) + b"]}",
        json.dumps({"rev": 1, "models": [], **{f"k{number}": 0 for number in range(60_000)}}).encode(),
        json.dumps({"rev": 1, "models": [{**WISH, **{f"k{number}": 0 for number in range(50_000)}}]}).encode(),
        json.dumps({"rev": 1, "models": [], "x" * 1_000_000: 0}).encode(),
        b'{"' + b"x" * 500_000 + b'": 1, "' + b"x" * 500_000 + b'": 1}',
        json.dumps({"rev": 1, "models": [{**WISH, "name": "x" * 1_000_000}]}).encode(),
        json.dumps({"rev": 1, "models": [{**WISH, "name": "x" * 10_000}] * 90}).encode(),
        json.dumps({"rev": 1, "models": [WISH] * 900}).encode(),
    ],
    ids=["entries", "fewer entries", "keys", "keys of one", "a key", "a key twice", "a name", "names", "twice"],
)
def test_what_is_told_of_a_large_message_is_short(payload: bytes) -> None:
    """It goes into the log and into a retained message: the first mistakes, and how many more."""
    assert len(payload) <= desired.MAX_BYTES
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # whatever it says
        desired.parse(payload, KNOWN)
    assert len(str(caught.value)) < SMALL


def test_a_message_beyond_all_measure_is_refused_as_a_whole() -> None:
    """Without a look at each entry or key, which would take long."""
    many = {f"k{number}": 0 for number in range(15)}
    for body, said in (
        ({"rev": 1, "models": [{}] * 1001}, "models: 1001 entries, at most 1000"),
        ({"rev": 1, "models": [], **many}, r"\$: 17 keys, at most 16"),
        ({"rev": 1, "models": [{**WISH, **many}]}, r"models\[0\]: 18 keys, at most 16"),
    ):
        with pytest.raises(ValueError, match=f"^{said}$"):
            parsed(body)


def test_mistakes_that_are_not_told_are_counted() -> None:
    """Nine entries, each with three keys missing."""
    with pytest.raises(ValueError, match=r"^models\[0\]\.name: .*; and 22 more$"):
        parsed({"rev": 1, "models": [{}] * 9})


@pytest.mark.parametrize(
    "payload", [b"\xff", b"{", b'{"rev": 1, "rev": 2, "models": []}', b"[" * 100_000, b" " * (desired.MAX_BYTES + 1)]
)
def test_garbage(payload: bytes) -> None:
    """Never anything but a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011  # whatever it says
        desired.parse(payload, KNOWN)


@pytest.mark.parametrize(
    ("payload", "rev"),
    [
        (b'{"rev": 7, "models": [{"name": "nobody"}]}', 7),
        (b'{"rev": 0, "models": 3}', 0),
        (json.dumps({"rev": 8, "models": [WISH] * 1001}).encode(), 8),
        (b'{"rev": 9, "rev": 9, "models": []}', None),
        (b'{"rev": true, "models": 3}', None),
        (b'{"rev": "7", "models": []}', None),
        (b'{"rev": -1, "models": []}', None),
        (b'{"rev": 9007199254740993, "models": []}', None),
        (b'{"models": []}', None),
        (b"[7]", None),
        (b'{"rev": 7', None),
        (b'{"rev": 7}' + b" " * (1 << 20), None),
    ],
)
def test_a_rejected_message_is_named_by_its_revision(payload: bytes, rev: int | None) -> None:
    """Whoever sent it finds it in the report, where it has a revision that can be read."""
    with pytest.raises(desired.RejectedError) as caught:
        desired.parse(payload, KNOWN)
    assert caught.value.rev == rev
