"""The reference of the configuration: one commented YAML text made from the classes of `edged.config`.

`python -m edged.config_reference > configs/reference.yaml` writes the sample that `edged sample reference` prints.
It loads as it stands. Keys that have no default are shown with an example; optional ones without one are commented out.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from edged import schema
from edged.checks import Reads
from edged.config import Config
from edged.yamlload import scalar

_HEADER = """\
# Every key of edged's configuration, with its type and its default.
# A file needs only the keys marked "required" and those that differ from their default. The value shown is the
# default; it is an example where the key is required or commented out.
# Byte sizes: 4096, 10kB, 64MiB. Relative paths are relative to the file. true and false are the only booleans.
# No anchors, aliases or tags. An unknown key is an error: `edged check -c FILE` tells all that is wrong at once.

"""
_WIDTH = 110
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def reference() -> str:
    """Return the text."""
    return _HEADER + "\n".join(_section(Config, "")).rstrip() + "\n"


def _section(cls: Any, indent: str) -> Iterator[str]:
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        yield from _comment(field, hints[field.name], indent)
        yield from _entry(field, hints[field.name], indent)
        if not indent:
            yield ""


def _comment(field: dataclasses.Field[Any], tp: Any, indent: str) -> list[str]:
    facts = [*_type_words(tp), "required" if _required(field) else ""]
    shown = ", ".join(fact for fact in facts if fact)
    text = f"{field.metadata['help']} ({shown})" if shown else field.metadata["help"]
    return textwrap.wrap(text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def _entry(field: dataclasses.Field[Any], tp: Any, indent: str) -> Iterator[str]:
    inner = _inner(tp)
    if dataclasses.is_dataclass(inner):
        off = "# " if field.default is None else ""  # a section that is not there by default
        yield f"{indent}{off}{field.name}:"
        yield from (off + line for line in _section(inner, indent + "  "))
    elif typing.get_origin(inner) is tuple and dataclasses.is_dataclass(typing.get_args(inner)[0]):
        yield f"{indent}{field.name}:"
        first, *rest = _section(typing.get_args(inner)[0], indent + "    ")
        yield f"{indent}  - {first.lstrip()}"
        yield from rest
    else:
        value = field.metadata.get("example", field.default)
        off = "# " if "example" in field.metadata and not _required(field) else ""
        yield f"{indent}{off}{field.name}: {_yaml(value, tp)}"


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _inner(tp: Any) -> Any:
    """Return a type without `Annotated` and `| None`."""
    args = [arg for arg in typing.get_args(tp) if arg is not type(None)]
    if typing.get_origin(tp) is Annotated or (len(args) == 1 and typing.get_origin(tp) is not tuple):
        return _inner(args[0]) if typing.get_origin(tp) is not Literal else tp
    return tp


def _type_words(tp: Any) -> list[str]:
    """Return the type and its rules in words; nothing for a mapping with keys of its own."""
    inner = _inner(tp)
    if dataclasses.is_dataclass(inner):
        return []
    extras = [extra for arm in (tp, *typing.get_args(tp)) for extra in getattr(arm, "__metadata__", ())]
    reads = next((extra.says for extra in extras if isinstance(extra, Reads) and extra.says), None)
    rules = [getattr(extra, "says", "") for extra in extras if not isinstance(extra, Reads)]
    if typing.get_origin(inner) is Literal:
        return ["one of " + " | ".join(map(str, typing.get_args(inner)))]
    arms = typing.get_args(inner) if typing.get_origin(inner) in (typing.Union, types.UnionType) else [inner]
    return [reads or " or ".join(map(schema.name, arms)), *rules]


def _yaml(value: Any, tp: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_yaml(item, None) for item in value)}]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and scalar(value) == value else json.dumps(value)
    is_size = any(isinstance(extra, Reads) and "MiB" in extra.says for extra in getattr(tp, "__metadata__", ()))
    if is_size and value and value % 2**20 == 0:
        return f"{value >> 20}MiB"
    return str(value)


if __name__ == "__main__":
    sys.stdout.write(reference())
