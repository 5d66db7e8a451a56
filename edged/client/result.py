"""The answer to one request. The arrays are decoded at first use, in the thread that asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edged import codecs
from edged.client import cbor, payloads
from edged.client.untrusted import parse_object
from edged.errors import Code, RequestError
from edged.meta import Meta


@dataclass(frozen=True, repr=False)
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
        return codecs.TABLE[self.codec].content_type

    @cached_property
    def outputs(self) -> dict[str, payloads.Array]:
        """Arrays by output name, as `edged.client.payloads.decode` gives them; raises RequestError(INTERNAL)."""
        try:
            return payloads.decode(self.payload, self.codec, self.meta.outputs)
        except ValueError as error:
            raise RequestError(Code.INTERNAL, f"the {self.codec} reply cannot be read: {error}") from error

    @cached_property
    def document(self) -> dict[str, Any]:
        """The whole JSON or CBOR reply, with what stands beside the outputs (classes), empty for other codecs.

        Raises RequestError(INTERNAL).
        """
        if self.codec == "cbor":
            return self._cbor()
        if self.codec != "json":
            return {}
        document = parse_object(self.payload)
        if document is None:
            raise RequestError(Code.INTERNAL, "the json reply cannot be read: it is not a JSON object")
        return document

    def _cbor(self) -> dict[str, Any]:
        try:
            return cbor.read(self.payload)
        except ValueError as error:
            raise RequestError(Code.INTERNAL, f"the cbor reply cannot be read: {error}") from error

    def __repr__(self) -> str:
        about = f"{len(self.payload)} bytes of {self.codec}, model version {self.meta.version}"
        return f"<Result: {about}, {self.round_trip_ms:.3f} ms, {self.resends} resends>"
