"""What a TFLite runtime says when it refuses a model, in a clause that a person can act on.

The runtimes write for programmers: several lines, with advice on building them; which op it is stands somewhere inside.
"""

from __future__ import annotations

import re

from edged.shown import one_line

_NODE = re.compile(r"Node number \d+ \((\w+)\)")
_CUSTOM = re.compile(r"Encountered unresolved custom op: (.+?)\.? See instructions")
_VERSION = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")
_NUMBER = re.compile(r"Op builtin_code out of range: (\d+)")
# What the runtimes put right behind a delegate's own words.
_RESTORED = re.compile(r"\s*Restored original execution plan after delegate application failure\.?")
_NODE_NEXT = re.compile(r"(?<![.;\s])[.;\s]*(?=Node number \d+ \()")


def told(exc: BaseException) -> str:
    """Return an error's whole text as a clause in one line, a delegate's words apart from what a runtime adds."""
    text = one_line(exc)
    kept = _RESTORED.sub("", text).strip() or text
    return _NODE_NEXT.sub(lambda found: "; " if found.start() else "", kept).rstrip(".")


def why(exc: BaseException) -> str:
    """Return why a runtime refuses a model: `it has no FULLY_CONNECTED version 12`, else its own words in one line."""
    text = one_line(exc)
    if "Select TensorFlow op(s)" in text:
        return f"it has no Flex delegate, which {''.join(_NODE.findall(text)[-1:]) or 'the model'} needs"
    if custom := _CUSTOM.search(text):
        return f"it has no custom op {custom[1]}"
    if version := _VERSION.search(text):
        return f"it has no {version[1]} version {version[2]}"
    if number := _NUMBER.search(text):
        return f"it has no builtin op of number {number[1]}"
    return text
