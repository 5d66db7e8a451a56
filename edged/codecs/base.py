"""What a codec is: bytes to input arrays, output arrays to bytes; no sockets, no model, no threads.

Rules every codec keeps (tests/contract/test_codecs.py finds each by the registry):
- `decode` writes every element of `into` or raises `RequestError(INVALID_ARGUMENT)` that names what was wrong;
  it accepts any bytes without another exception, and refuses NaN and Inf in floats as JSON does.
- `into` has the client's dtype and the bundle's shape: what is written there is exactly what the client sent.
- `encode(decode(x))` of a round-trip codec is the identity, bit for bit, for float32 too.
- What `encode` must know of the request (the JSON form that was asked for) is what `decode` returns: the worker merges
  it into `annotations`. Such keys begin with `HINT`; no codec ever sends them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy.typing as npt

from edged.bundle import Signature
from edged.request import Buffer

Array = npt.NDArray[Any]
NO_ANNOTATIONS: Mapping[str, object] = {}
HINT = "$"  # begins the keys that travel from `decode` to `encode` and never to the wire


class Codec(Protocol):
    """One payload format. `name` is the codec level of an MQTT 3.1.1 request topic."""

    name: ClassVar[str]
    content_type: ClassVar[str]
    reply_codec: ClassVar[str]  # the codec of the answer: its own name, or "json" for decode-only formats

    def decode(self, payload: Buffer, signature: Signature, into: Sequence[Array]) -> Mapping[str, object] | None:
        """Fill `into` (one array per declared input, in order) from the payload.

        Returns hints for `encode` (keys beginning with `HINT`), or None.
        """

    def encode(
        self, outputs: Sequence[Array], signature: Signature, annotations: Mapping[str, object] = NO_ANNOTATIONS
    ) -> bytes:
        """Serialise the outputs (declared order). Formats with room for facts add `annotations`."""
