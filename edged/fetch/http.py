"""The download of one file over http or https, from where an earlier try was cut off. Runs in the child."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from contextlib import closing
from typing import IO, Any
from urllib.parse import urlsplit

from edged import __version__
from edged.fetch import Order
from edged.fetch.sources import CHUNK, FetchError, Sink
from edged.shown import clipped

MAX_REDIRECTS = 5
_MOST_DIGITS = 18
PARTIAL, NOT_SATISFIABLE, SERVER_ERROR = 206, 416, 500
# Request Timeout, Too Early, Too Many Requests.
PASSING = frozenset({408, 425, 429})


def download(order: Order, sink: Sink) -> str:
    """Read it into `sink`; returns what the server told of it, for an error message. Raises FetchError."""
    try:
        with _opened(order, sink.bytes) as response:
            if response.status != PARTIAL:
                sink.restart()
            told = response.headers.get("Content-Length", "")
            length = int(told) if told.isascii() and told.isdigit() and len(told) <= _MOST_DIGITS else None
            sink.expect(None if length is None else sink.bytes + length)
            _read(response, sink, length)
            kind = response.headers.get_content_type()
    except urllib.error.HTTPError as exc:
        with closing(exc):
            if exc.code == NOT_SATISFIABLE and sink.bytes:
                sink.restart()
                raise FetchError("the server has less of it than before", again=True) from exc
            again = exc.code in PASSING or exc.code >= SERVER_ERROR
            raise FetchError(f"the server answers {exc.code} {clipped(str(exc.reason))}", again=again) from exc
    except ssl.SSLCertVerificationError as exc:
        raise FetchError(f"the server's certificate is not trusted: {exc.verify_message}") from exc
    except urllib.error.URLError as exc:
        raise _unreachable(exc) from exc
    except (OSError, http.client.HTTPException) as exc:
        raise FetchError(f"the connection broke after {sink.bytes} bytes: {_words(exc)}", again=True) from exc
    return f" of {clipped(kind)}"


def _read(response: http.client.HTTPResponse, sink: Sink, length: int | None) -> None:
    start = sink.bytes
    # What is there, not as much as was asked for: it is kept when the connection breaks.
    while piece := response.read1(CHUNK):
        sink.write(piece)
    if length is not None and sink.bytes - start < length:
        raise FetchError(f"the server ended after {sink.bytes - start} of {length} bytes", again=True)


def _unreachable(exc: urllib.error.URLError) -> FetchError:
    if isinstance(exc.reason, ssl.SSLCertVerificationError):
        return FetchError(f"the server's certificate is not trusted: {exc.reason.verify_message}")
    return FetchError(f"cannot be reached: {_words(exc.reason)}", again=isinstance(exc.reason, OSError))


def _words(exc: object) -> str:
    if isinstance(exc, TimeoutError):
        return "nothing came for too long"
    return clipped(getattr(exc, "strerror", None) or str(exc) or type(exc).__name__)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """As browsers do, but a few only, and never from https to http."""

    max_redirections = max_repeats = MAX_REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise FetchError("the server leads from https to http, which is not followed")
        # The caller would read it to its end, which a server need not have. Of one that is closed it reads nothing.
        fp.close()
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opened(order: Order, offset: int) -> Any:
    # Not the default opener: it reads files and FTP too, wherever a server leads.
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPDefaultErrorHandler, _Redirects,
        urllib.request.HTTPErrorProcessor, urllib.request.UnknownHandler,
    ):  # fmt: skip
        opener.add_handler(handler())
    opener.add_handler(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    headers = {"User-Agent": f"edged/{__version__}", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    # The scheme was checked where the message was read, and this opener knows no other.
    return opener.open(urllib.request.Request(order.source, headers=headers), timeout=order.idle_s)  # noqa: S310
