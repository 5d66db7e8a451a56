"""Between a request and the arrays of an engine: decode, encode, the facts of a reply, and who may send it.

Exactly one caller answers a request; the figures of its model hear of it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from edged import codecs, postprocess
from edged.bundle import Signature
from edged.clock import now_ns
from edged.codecs.base import Array, Codec
from edged.errors import Code, RequestError
from edged.figures import ModelFigures
from edged.meta import Meta, OutputMeta, format_meta
from edged.request import OnSent, Reply, Request

log = logging.getLogger(__name__)

MAX_META = 32_768
# Who encodes the answer, and what the decoder said of the request: see `edged.codecs.base`.
Form = tuple[Codec, Mapping[str, object] | None]


class Answering:
    """What one model's requests and replies have in common. signature: of one request. The worker's thread only."""

    def __init__(self, name: str, signature: Signature, figures: ModelFigures) -> None:
        self.signature = signature
        self._name, self._figures, self._meta = name, figures, ""

    def tell(self, version: int, delegate: str) -> None:
        """Let replies name this version and delegate from now on."""
        outputs = tuple(OutputMeta(spec.name, spec.wire_dtype.name, spec.shape) for spec in self.signature.outputs)
        meta = Meta(version=version, path="local", delegate=delegate, outputs=outputs)
        told = format_meta(meta)
        # An MQTT string ends at 64 KiB: names that long are left out rather than every reply.
        self._meta = told if len(told) <= MAX_META else format_meta(dataclasses.replace(meta, outputs=()))

    def decode(self, request: Request, into: Sequence[Array]) -> Form:
        """Write the request's payload into arrays of the signature's shapes. Raises RequestError."""
        # The payload is taken once: whoever claims the request meanwhile drops its own reference.
        payload, decoder = request.payload, codecs.load(request.codec)
        encoder = codecs.load(request.reply_codec or decoder.reply_codec)
        return encoder, decoder.decode(payload, self.signature, into)

    def encode(self, request: Request, form: Form, outputs: Sequence[Array]) -> Reply:
        """Return the reply with these outputs; it tells the marks up to `inferred_ns`. Raises RequestError."""
        encoder, hints = form
        shown = postprocess.apply(outputs, self.signature)
        encoded = encoder.encode(shown, self.signature, _merge(request.annotations, hints))
        request.encoded_ns = now_ns()
        queue_us = (request.started_ns - request.admitted_ns) // 1000
        infer_us = (request.inferred_ns - request.decoded_ns) // 1000
        return Reply(encoded, encoder.content_type, f"{self._meta};q={queue_us};i={infer_us}")

    def failure(self, error: Exception) -> Reply:
        """Return the reply to a request for which `error` was raised and caught."""
        if not isinstance(error, RequestError):
            log.error("model %s: request failed", self._name, exc_info=error)
            error = RequestError(Code.INTERNAL, str(error) or type(error).__name__)
        return Reply.failure(error, self._meta)

    def deliver(self, request: Request, reply: Reply) -> bool:
        """Answer, unless somebody has; returns whether this call did."""
        try:
            return answer(request, reply, self._figures)
        except Exception:  # top of a request: one reply that cannot be sent must not end the model
            log.exception("model %s: a reply could not be sent", self._name)
            return True


def _merge(first: Mapping[str, object] | None, second: Mapping[str, object] | None) -> Mapping[str, object]:
    return {**(first or {}), **(second or {})}


def answer(request: Request, reply: Reply, figures: ModelFigures) -> bool:
    """Answer `request` if nobody has yet; returns whether this call did. Any thread."""
    if not request.claim():
        return False
    figures.answered(reply)
    request.respond(request, reply, _timer(request, reply, figures))
    return True


def _timer(request: Request, reply: Reply, figures: ModelFigures) -> OnSent | None:
    """Return who records the latency once the reply is out.

    A refusal is quick and would flatter the percentiles: nobody. A missed deadline is slow and must not be left out:
    the total alone, since the worker may still be writing the marks.
    """
    if reply.error is None:
        return partial(figures.sent, request)
    return partial(figures.missed, request) if reply.error.code is Code.DEADLINE_EXCEEDED else None
