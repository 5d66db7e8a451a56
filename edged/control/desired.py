"""The message on desired/models: which bundle each model is to serve. Pure: text in, wishes or every mistake out."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from edged import schema
from edged.checks import Check, at_least, at_most, hint
from edged.schema import Problem

MAX_REV = 2**53
MAX_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _sha256(text: str) -> str | None:
    return None if _SHA256.fullmatch(text) else "must be 64 lower-case hexadecimal digits"


def _source(text: str) -> str | None:
    """Say what is wrong with an address; the address itself may hold a secret."""
    if text.startswith("/") and "\0" not in text:
        return None
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as exc:
        return f"is no address: {exc}"
    if not text.isascii() or not text.isprintable() or " " in text:
        return "must be plain ASCII without blanks"
    if parts.scheme == "file":
        return None if not parts.netloc and parts.path.startswith("/") else "must be file:///absolute/path"
    if parts.scheme not in ("http", "https") or not host:
        return "must be http://, https://, file:/// or an absolute path"
    return "must not hold a login" if "@" in parts.netloc else None


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
        names = [wish.name for wish in self.models]
        for place, name in enumerate(names):
            if name in names[:place]:
                yield Problem(f"models[{place}].name", f"{name!r} is named twice")


def parse(payload: bytes, known: Collection[str]) -> Desired:
    """Read the message. known: the configured models. Raises ValueError with every mistake, where and what."""
    if len(payload) > MAX_BYTES:
        raise ValueError(f"{len(payload)} bytes, at most {MAX_BYTES}")
    try:
        value = json.loads(payload, object_pairs_hook=schema.unique_pairs)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"not JSON: {exc}") from exc
    built, problems = schema.build(Desired, value)
    if built is not None:
        problems = list(_unknown(built, known))
    if built is None or problems:
        raise ValueError("; ".join(f"{problem.path}: {problem.message}" for problem in problems))
    return built


def _unknown(desired: Desired, known: Collection[str]) -> Iterator[Problem]:
    for place, wish in enumerate(desired.models):
        if wish.name not in known:
            yield Problem(
                f"models[{place}].name", f"no model is called {schema.show(wish.name)}{hint(wish.name, known)}"
            )
