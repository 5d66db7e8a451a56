"""edged: TensorFlow SavedModels on edge boxes, served over MQTT with a known P99."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edged.client import Client, Result
    from edged.client.local import LocalProducer
    from edged.errors import EdgedError, RequestError

__version__ = "0.1.0"

__all__ = ["Client", "EdgedError", "LocalProducer", "RequestError", "Result", "__version__"]


def __getattr__(name: str) -> object:
    # PEP 562: the SDK brings numpy and a transport, which the daemon's start must not pay for.
    if name in ("Client", "Result"):
        from edged import client  # noqa: PLC0415 - loaded on demand, see above

        return getattr(client, name)
    if name == "LocalProducer":
        from edged.client.local import LocalProducer  # noqa: PLC0415 - as above

        return LocalProducer
    if name in ("EdgedError", "RequestError"):
        from edged import errors  # noqa: PLC0415 - as above

        return getattr(errors, name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
