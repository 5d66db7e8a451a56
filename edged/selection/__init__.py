"""Which candidate serves a bundle: every one measured in a child process, the result kept until its key changes."""

from edged.selection.locks import served
from edged.selection.selector import NothingAgreesError, Selection, Selector
from edged.selection.wish import Wish

__all__ = ["NothingAgreesError", "Selection", "Selector", "Wish", "served"]
