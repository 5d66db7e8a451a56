"""Why a model may not ship, as the report page tells it: missed limits first, the worst of them on top."""

from __future__ import annotations

from collections.abc import Sequence

from converters.report import Attempt
from converters.reportpage_html import Html, el, fold, join, lines, name
from converters.reportpage_words import count, judged
from converters.reportpage_worst import Worst, missed, others, parts, worst

# What fits the first screen of a phone; the rest is one touch away.
_LETTERS = 300


def told(attempt: Attempt, most: int, notes: Sequence[str] = ()) -> Html:
    """Return the `most` worst reasons, and where that leaves something out, all of them folded under them.

    A missed limit takes the words of the page; what else there is to say stands as the converter said it, `notes` last.
    At least one of those is told.
    """
    failing, rest = missed(worst(attempt)), [*others(attempt), *notes]
    words = [_limit(item) for item in failing[: most - 1 if rest else most]]
    words += [join([short(reason)]) for reason in rest[: most - len(words)]]
    whole = [*(part for reason in attempt.reasons for part in parts(reason)), *notes]
    hidden = len(words) < len(failing) + len(rest) or any(len(reason) > _LETTERS for reason in rest)
    shown = lines(words) if len(words) > 1 else join(el("p", word) for word in words)
    return join([shown, fold(f"{count(len(whole), 'reason')} in full", lines(whole)) if hidden else ""])


def _limit(item: Worst) -> Html:
    return join([name(item.gate.output), f": {judged(item.gate)}"])


def short(reason: str) -> str:
    """Return a reason that fits a phone."""
    return reason if len(reason) <= _LETTERS else reason[: _LETTERS - 1].rstrip() + "…"
