"""The message on desired/models: which bundle each model is to serve. Pure: text in, wishes or every mistake out."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote, urlsplit

from edged import schema
from edged.checks import Check, at_least, at_most, hint
from edged.control import messages
from edged.schema import Problem
from edged.shown import clipped

MAX_REV = 2**53
MAX_BYTES = 1 << 20
# With more entries, each is not looked at.
MAX_MODELS, MAX_URL = 1000, 4096
MAX_LABEL = 63  # of a name, by DNS
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _sha256(text: str) -> str | None:
    return None if _SHA256.fullmatch(text) else "must be 64 lower-case hexadecimal digits"


def _source(text: str) -> str | None:
    """Say what is wrong with an address; the address itself may hold a secret."""
    if len(text) > MAX_URL:
        return f"must have at most {MAX_URL} characters"
    if text.startswith("/"):
        return _path(text)
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:  # its text repeats what stands where a port should
        return "is no address"
    if not text.isascii() or not text.isprintable() or " " in text:
        return "must be plain ASCII without blanks"
    if parts.scheme == "file":
        absolute = not parts.netloc and parts.path.startswith("/")
        return _path(unquote(parts.path)) if absolute else "must be file:///absolute/path"
    if parts.scheme not in ("http", "https") or not host:
        return "must be http://, https://, file:/// or an absolute path"
    if not all(0 < len(label) <= MAX_LABEL for label in host.removesuffix(".").split(".")):
        return f"must have a host whose parts are of 1 to {MAX_LABEL} characters"
    return "must not hold a login" if "@" in parts.netloc else None


def _path(text: str) -> str | None:
    whole = "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
    return None if whole else "must be a path without NUL and lone surrogates"


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One model's bundle. sha256: of the .tar, or of a directory's bundle.json. version: that of the bundle."""

    name: str
    url: Annotated[str, Check(_source)]
    sha256: Annotated[str, Check(_sha256)]
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class Desired:
    """The whole message. rev: told in reports, and compared with nothing: the last message counts."""

    rev: Annotated[int, at_least(0), at_most(MAX_REV)]
    models: tuple[Wish, ...]

    def problems(self) -> Iterator[Problem]:
        """Yield models that are named twice."""
        seen: set[str] = set()
        for place, wish in enumerate(self.models):
            if wish.name in seen:
                yield Problem(f"models[{place}].name", f"{schema.show(wish.name)} is named twice")
            seen.add(wish.name)


class RejectedError(ValueError):
    """The mistakes, where and what. rev: that of the message, None where it cannot be read or is none."""

    def __init__(self, what: str, rev: int | None = None) -> None:
        super().__init__(what)
        self.rev = rev


def parse(payload: bytes, known: Collection[str]) -> Desired:
    """Read the message. known: the configured models. Raises RejectedError."""
    if len(payload) > MAX_BYTES:
        raise RejectedError(f"{len(payload)} bytes, at most {MAX_BYTES}")
    try:
        value = json.loads(payload, object_pairs_hook=schema.unique_pairs)
    except (ValueError, RecursionError) as exc:
        raise RejectedError(clipped(f"not JSON: {exc}", messages.MAX_TEXT)) from exc
    try:
        return _desired(value, known)
    except ValueError as exc:
        raise RejectedError(str(exc), _rev(value)) from exc


def _rev(value: object) -> int | None:
    rev = value.get("rev") if isinstance(value, dict) else None
    return rev if type(rev) is int and 0 <= rev <= MAX_REV else None


def _desired(value: object, known: Collection[str]) -> Desired:
    _require_measure(value)
    built, problems = schema.build(Desired, value)
    if built is not None:
        problems = list(_unknown(built, known))
    if built is None or problems:
        raise ValueError(messages.told(problems))
    return built


def _require_measure(value: object) -> None:
    """Raise ValueError for what is so large that to look at each mistake in it would take long."""
    models = value.get("models") if isinstance(value, dict) else None
    entries = models if isinstance(models, list) else []
    if len(entries) > MAX_MODELS:
        raise ValueError(f"models: {len(entries)} entries, at most {MAX_MODELS}")
    for place, one in (("$", value), *((f"models[{number}]", entry) for number, entry in enumerate(entries))):
        if why := messages.keys_problem(one):
            raise ValueError(f"{place}: {why}")


def _unknown(desired: Desired, known: Collection[str]) -> Iterator[Problem]:
    for place, wish in enumerate(desired.models):
        if wish.name not in known:
            yield Problem(
                f"models[{place}].name", f"no model is called {schema.show(wish.name)}{hint(wish.name, known)}"
            )
