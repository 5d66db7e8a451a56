"""The SDK. `from edged import Client` is the way in."""

from __future__ import annotations

from edged.client.api import Client
from edged.client.result import Result

__all__ = ["Client", "Result"]
