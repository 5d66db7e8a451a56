"""What is measured: something that takes requests by number and answers them, by whatever way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from edged.bench.metrics import Told
from edged.client.payloads import Encoded


@dataclass(frozen=True)
class Question:
    """The request that is asked again and again. deadline_ms: from the send to the answer."""

    model: str
    encoded: Encoded
    qos: int
    deadline_ms: int


# (number, monotonic ns at which it was here, error code or "")
OnAnswer = Callable[[int, int, str], None]


class Target(Protocol):
    """A way to a server of models. `send` is called from one thread, `OnAnswer` on the target's own, which it holds up.

    where: how an error names it.
    """

    where: str

    def start(self, timeout_s: float) -> None:
        """Connect; raises UnavailableError when there is no connection in time."""

    def listen(self, on_answer: OnAnswer) -> None:
        """Hand every answer from now on to `on_answer`, those to nobody's question as well."""

    def send(self, number: int, question: Question) -> bool:
        """Send a request under a number that no other has; False when it was not taken. Never waits."""

    def model(self, name: str) -> Mapping[str, Any]:
        """Return what the target says of a model of that name; empty when it says nothing."""

    def facts(self) -> Mapping[str, Any]:
        """Return what the target says of itself, for the report; `state` where it has one."""

    def told(self) -> Told | None:
        """Return the last figures that the target published of itself."""

    def stop(self) -> None:
        """Disconnect."""
