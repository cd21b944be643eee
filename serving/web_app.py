"""Routes with everything that surrounds their handlers: limits, token, request ids, errors as JSON, the request log.

    app = WebApp([Route("GET", "/v1/items/(?P<id>[^/]+)", get_item)], settings)

A handler is `async def get_item(request: Request) -> Response`. It finds the named groups of its pattern in
`request.params`, and raises a `ServingError` for an error that the client should see. `serving.web_server` serves the
application: it is an RSGI application, which Granian calls with whole requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import itertools
import logging
import re
import secrets
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from granian.rsgi import ProtocolClosed

from serving.errors import ServingError, from_exception, invalid_argument
from serving.web_server import WebSettings

logger = logging.getLogger(__name__)

JSON = "application/json"
_MAX_ID_LENGTH = 128
_MAX_PATH_LENGTH = 1024
_MAX_SHOWN = 200
# An unwanted body is read, and dropped, until the client pauses for this long.
_DRAIN_SECONDS = 0.5
# Watching for clients that hang up costs as much as parsing the request, so it starts when an answer takes long.
_WATCH_AFTER_SECONDS = 0.1
_ERROR_HEADERS = {
    "UNAUTHENTICATED": ("www-authenticate", "Bearer"),
    "RESOURCE_EXHAUSTED": ("retry-after", "1"),
    "UNAVAILABLE": ("retry-after", "1"),
}
# Why a request's task is cancelled, and the resulting answer.
_LATE, _GONE = "the request did not arrive in time", "the client closed the connection"
_CANCELLATIONS = {
    (_LATE,): ServingError("DEADLINE_EXCEEDED", "The request did not arrive in time.", 408),
    (_GONE,): ServingError("CANCELLED", "The client closed the connection."),
}


class Guard:
    """Token, request ids and request log, for every interface of a service."""

    def __init__(self, settings: WebSettings):
        self._authorization = None if settings.token is None else f"Bearer {settings.token}".encode()
        self._access_log = settings.access_log
        self._id_prefix = secrets.token_hex(6)
        self._id_numbers = itertools.count(1)

    def request_id(self, received: str | None) -> str:
        """The client's request id if it is short and printable ASCII, else a new one."""
        if received and len(received) <= _MAX_ID_LENGTH and received.isascii() and received.isprintable():
            return received
        return f"{self._id_prefix}-{next(self._id_numbers)}"

    def check_token(self, authorization: str | None) -> None:
        """Rejects a request without the bearer token, if one is set.

        Raises:
            ServingError: UNAUTHENTICATED.
        """
        if self._authorization is None:
            return
        if authorization is None or not hmac.compare_digest(authorization.encode(), self._authorization):
            raise ServingError("UNAUTHENTICATED", "A valid bearer token must be sent in the Authorization header.")

    def log(self, request_id: str, request: Sequence[str], error: ServingError | None, seconds: float) -> None:
        """Logs an answered request: errors always, others if the access log is on."""
        if error is None and not self._access_log:
            return
        fields = {
            "request_id": request_id,
            "request": " ".join(request)[:_MAX_SHOWN],
            "status": "OK" if error is None else error.code,
            "ms": round(1000 * seconds, 2),
        }
        if error is not None:
            fields["error"] = error.message
        is_ours = error is not None and error.http_status == 500
        logger.log(logging.ERROR if is_ours else logging.INFO, "request", extra=fields)


class Request:
    """One HTTP request.

    Attributes:
        method: the HTTP method, such as "POST".
        path: the percent-decoded path.
        query: the query string as it was sent.
        headers: `headers.get(name)` returns the value of a header, or None.
        id: the client's `X-Request-Id`, or a new one.
        is_read: whether the body was read, wholly or in part.
        is_complete: whether nothing of the request is left to be read. The connection must be closed otherwise.
        params: named groups of the route's pattern.
    """

    __slots__ = (
        "_protocol", "_settings", "headers", "id", "is_complete", "is_read", "method", "params", "path", "query",
    )  # fmt: skip

    def __init__(self, scope: Any, protocol: Any, settings: WebSettings, guard: Guard):
        self._protocol, self._settings = protocol, settings
        self.is_read, self.is_complete = False, True
        self.method, self.path, self.query, self.headers = scope.method, scope.path, scope.query_string, scope.headers
        self.id = guard.request_id(self.headers.get("x-request-id"))
        self.params: Mapping[str, Any] = {}

    async def body(self) -> bytes:
        """The body, decompressed if it came as gzip.

        Raises:
            ServingError: INVALID_ARGUMENT if the body is malformed, in another encoding, or too large (413).
            asyncio.CancelledError: if the body does not arrive in time; the client gets a 408.
        """
        limit = self._settings.max_body_bytes
        body = await self._receive(limit)
        encoding = self.headers.get("content-encoding")
        if encoding is None or encoding.lower() == "identity":
            return body
        if encoding.lower() != "gzip":
            raise invalid_argument(f"Content-Encoding must be gzip. Received: {encoding[:_MAX_SHOWN]}.")
        return gunzip(body, limit)

    async def drop_body(self) -> None:
        """Reads and drops an unread body: closing a connection while the client sends would lose the answer."""
        if self.headers.get("content-length") or self.headers.get("transfer-encoding"):
            with contextlib.suppress(ServingError):
                await self._receive(-1)

    async def _receive(self, limit: int) -> bytes:
        self.is_read, self.is_complete = True, False
        length = self.headers.get("content-length")
        is_too_large = limit < 0 or (length is not None and int(length) > limit)
        if is_too_large and self.headers.get("expect"):
            # The client waits for the answer before it sends the body.
            raise _too_large(limit, "more")
        timer = _cancel_later(_DRAIN_SECONDS if is_too_large else self._settings.request_timeout)
        try:
            if length is not None and not is_too_large:
                body = await self._protocol()
                self.is_complete = True
                return body
            chunks: list[bytes] = []
            size = num_ends = 0
            ends = time.monotonic() + self._settings.request_timeout
            async for chunk in self._protocol:
                size += len(chunk)
                # Granian marks the end by an empty chunk. One more of them stands for trailers, or for an error.
                num_ends += not chunk
                is_too_large = is_too_large or size > limit
                if is_too_large:
                    chunks = []
                    timer.cancel()
                    timer = _cancel_later(min(_DRAIN_SECONDS, ends - time.monotonic()))
                else:
                    chunks.append(chunk)
            self.is_complete = num_ends == 1
            if not self.is_complete and self.headers.get("trailer") is None:
                raise _malformed_body()
        except ProtocolClosed:
            raise _malformed_body() from None
        except asyncio.CancelledError as error:
            if error.args != (_LATE,) or not is_too_large:
                raise
        finally:
            timer.cancel()
        if is_too_large:
            raise _too_large(limit, "more")
        return b"".join(chunks)


@dataclass(slots=True)
class Response:
    """An answer. `headers` are those besides type, length and request id."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    headers: Sequence[tuple[str, str]] = ()


Handler = Callable[[Request], Awaitable[Response]]


class Route:
    """One kind of request.

    Args:
        method: the HTTP method.
        pattern: regular expression that the whole path must match.
        handler: answers the request.
        is_public: whether the request needs no token.
        convert: converts the pattern's groups to `Request.params`; the result is cached by path.
    """

    def __init__(
        self,
        method: str,
        pattern: str,
        handler: Handler,
        *,
        is_public: bool = False,
        convert: Callable[[dict[str, Any]], Mapping[str, Any]] = lambda groups: groups,
    ):
        self.method, self.handler, self.is_public = method, handler, is_public
        self.pattern, self.convert = re.compile(pattern), convert


def no_route(method: str, path: str) -> ServingError:
    """The answer where no route matches."""
    return ServingError("NOT_FOUND", f"There is nothing at {method} {path}.")


class WebApp:
    """An RSGI application.

    Args:
        routes: tried in order.
        settings: limits and token.
        observe: called after every answer with the request, its route (None if there is none), the error (None for
            success) and the seconds that it took; for metrics.
        no_route: makes the error where no route matches.
        error_body: makes the JSON body of an error.

    Attributes:
        stopping: whether the service is shutting down; readiness checks should fail then.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        settings: WebSettings,
        observe: Callable[[Request, Route | None, ServingError | None, float], None] | None = None,
        no_route: Callable[[str, str], ServingError] = no_route,
        error_body: Callable[[Request, ServingError], Any] = lambda request, error: {"error": error.message},
    ):
        self.settings = settings
        self.guard = Guard(settings)
        self.stopping = False
        self._routes, self._observe, self._no_route = tuple(routes), observe, no_route
        self._error_body = error_body
        self._find_cached = functools.lru_cache(maxsize=256)(self._find)

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        """Answers one request. Called by Granian."""
        started = time.perf_counter()
        request = Request(scope, protocol, self.settings, self.guard)
        route, error = None, None
        watch = _HangUpWatch(protocol)
        try:
            route, request.params = self._find_cached(request.method, request.path)
            if not route.is_public:
                self.guard.check_token(request.headers.get("authorization"))
            response = await route.handler(request)
        except asyncio.CancelledError as problem:
            if problem.args not in _CANCELLATIONS:
                raise
            error = _CANCELLATIONS[problem.args]
        except ServingError as problem:
            error = problem
        except Exception as problem:
            logger.error("request failed", exc_info=problem, extra={"request_id": request.id})
            error = from_exception(problem)
        finally:
            watch.stop()
        if not request.is_read:
            await request.drop_body()
        if error is not None:
            response = Response(orjson.dumps(self._error_body(request, error)), error.http_status)
            if error.code in _ERROR_HEADERS:
                response.headers = [_ERROR_HEADERS[error.code]]
        headers = [("content-type", response.content_type), ("x-request-id", request.id), *response.headers]
        if self.stopping or not request.is_complete:
            # Granian closes the connection without a word if a part of the body is left. The client would lose the
            # next request that it sends.
            headers.append(("connection", "close"))
        protocol.response_bytes(response.status, headers, response.body)
        seconds = time.perf_counter() - started
        self.guard.log(request.id, (request.method, request.path), error, seconds)
        if self._observe is not None:
            self._observe(request, route, error, seconds)

    def _find(self, method: str, path: str) -> tuple[Route, Mapping[str, Any]]:
        if len(path) <= _MAX_PATH_LENGTH:
            for route in self._routes:
                match = route.pattern.fullmatch(path) if route.method == method else None
                if match is not None:
                    return route, route.convert(match.groupdict())
        raise self._no_route(method, path[:_MAX_SHOWN])


class _HangUpWatch:
    """Cancels the current task if its client closes the connection, once the answer takes long."""

    __slots__ = ("_protocol", "_running", "_task", "_timer")

    def __init__(self, protocol: Any):
        self._protocol, self._task = protocol, asyncio.current_task()
        self._running: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._running is not None:
            self._running.cancel()

    def _start(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        await self._protocol.client_disconnect()
        if self._task is not None:
            self._task.cancel(_GONE)


def _cancel_later(seconds: float) -> asyncio.TimerHandle:
    task = asyncio.current_task()
    assert task is not None
    return asyncio.get_running_loop().call_later(seconds, task.cancel, _LATE)


def gunzip(body: bytes, limit: int) -> bytes:
    """Decompresses a gzip body, and stops as soon as the result exceeds `limit` bytes.

    Raises:
        ServingError: INVALID_ARGUMENT if the body is not gzip, or too large (413).
    """
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise invalid_argument(f"The body must be gzip. Received: {error}.") from None
    if len(unpacked) > limit:
        raise _too_large(limit, "more, once unpacked")
    if not unpacker.eof:
        raise invalid_argument("The body must be gzip. Received: one that ends too early.")
    return unpacked


def _malformed_body() -> ServingError:
    return invalid_argument("The body is malformed, or ended too early.")


def _too_large(limit: int, received: str) -> ServingError:
    return ServingError("INVALID_ARGUMENT", f"The body must have at most {limit} bytes. Received: {received}.", 413)
