"""The answer to one request. The arrays are decoded at first use, in the thread that asks for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edged.client import payloads
from edged.errors import Code, RequestError
from edged.meta import Meta


@dataclass(frozen=True)
class Result:
    """One answer. `payload` is the reply as it came, in `codec`; `meta` is empty over MQTT 3.1.1.

    round_trip_ms: from the call (not the last resend) to the reply. resends: how often the request was sent again.
    """

    payload: bytes
    codec: str
    meta: Meta
    round_trip_ms: float
    resends: int

    @property
    def content_type(self) -> str:
        """The MIME type of the payload."""
        return payloads.CONTENT_TYPES[self.codec]

    @cached_property
    def outputs(self) -> dict[str, payloads.Array]:
        """Arrays by output name, as `edged.client.payloads.decode` gives them; raises RequestError(INTERNAL)."""
        try:
            return payloads.decode(self.payload, self.codec, self.meta.outputs)
        except Exception as error:
            # Bytes of the network: what a parser may raise has no end, and this is the top of reading them.
            raise RequestError(Code.INTERNAL, f"the {self.codec} reply cannot be read: {error}") from error

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole JSON reply, with what stands beside the outputs (classes); empty for other codecs."""
        if self.codec != "json":
            return {}
        try:
            document = json.loads(self.payload)
        except (ValueError, RecursionError) as error:
            raise RequestError(Code.INTERNAL, f"the reply is not JSON: {error}") from error
        return document if isinstance(document, dict) else {}
