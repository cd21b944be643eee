"""One HTTP/1.1 connection: requests in, under limits of size and time; answers out, in their order.

`RequestReader` reads, the sockets, TLS and the end of the server are uvicorn's, which takes this class for its `http`
option. Between the two there is nothing: behind ASGI each request costs a task, several coroutines and a dozen
dictionaries, and hashing one row is so little work that it showed in the throughput.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection
from typing import cast

from serving.server.errors import ServingError
from serving.server.http_messages import Application, Cancel, Request, Response
from serving.server.request_reader import RequestReader

_KEEP_ALIVE_SECONDS = 75.0
_LINGER_SECONDS = 2.0
_LOOK_SECONDS = 0.25


class HttpConnection(asyncio.Protocol):
    """Reads, answers one request at a time, and closes when told to, when idle, or after a broken request.

    Args:
        application: what answers.
        max_body_bytes: a longer body is a 413.
        receive_seconds: for a whole request from its first byte; then it is a 408.
        connections: the open ones; this one enters and leaves.
    """

    def __init__(
        self,
        application: Application,
        max_body_bytes: int,
        receive_seconds: float,
        connections: set[HttpConnection],
    ):
        self._application = application
        self._receive_seconds = receive_seconds
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader(max_body_bytes, self._receive, self._go_on)
        # What is being answered, and what has arrived before that was done.
        self._current: Request | None = None
        self._cancel: Cancel | None = None
        self._waiting: deque[Request] = deque()
        self._paused = False
        self._writable = True
        # When the last answer went out, or this end was closed; closing once nothing waits; nothing that arrives is
        # read any more.
        self._idle_since = time.perf_counter()
        self._closing = self._discarding = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        self._waiting.clear()
        if self._cancel is not None:
            self._cancel()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            return
        try:
            self._reader.feed(data)
        except ServingError as error:
            self._refuse(error)

    def eof_received(self) -> bool:
        # Who has said everything may still listen. Over TLS the end of one direction is the end of both.
        self._closing = True
        return self._is_busy() and self._transport is not None and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._next()

    def shutdown(self) -> None:
        """For uvicorn: what has begun is answered, then the connection closes."""
        if self._is_busy() or self._reader.receiving:
            self._closing = True
        else:
            self._close()

    def look_at_clock(self, now: float) -> None:
        """Ends what has lasted too long, apart from the answer, whose time is the application's to limit."""
        if self._current is not None or self._transport is None:
            return
        if self._transport.is_closing():
            # It waits until what was written has been read, which may be never.
            if now - self._idle_since > _KEEP_ALIVE_SECONDS:
                self._transport.abort()
        elif self._discarding and not self._waiting:
            if now - self._idle_since > _LINGER_SECONDS:
                self._close()
        elif self._reader.receiving and not self._waiting:
            if now - max(self._reader.started, self._idle_since) > self._receive_seconds:
                self._refuse(ServingError("DEADLINE_EXCEEDED", "The request did not arrive in time.", 408))
        elif now - self._idle_since > _KEEP_ALIVE_SECONDS:
            self._close()

    def _is_busy(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def _receive(self, request: Request) -> None:
        if not self._is_busy() and self._writable:
            self._start(request)
        else:
            # Sent before the answer to the one before: it has to wait, and so has what follows it.
            self._waiting.append(request)
            if not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()

    def _go_on(self) -> None:
        if not self._is_busy():
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _start(self, request: Request) -> None:
        self._current = request
        cancel = self._application.answer(request, self._respond)
        # It may have been answered already, and the next one begun.
        if self._current is request:
            self._cancel = cancel

    def _respond(self, response: Response) -> None:
        request, self._current, self._cancel = self._current, None, None
        if self._transport is None:
            return
        assert request is not None
        is_last = not request.keep_alive or (self._closing and not self._waiting)
        self._idle_since = time.perf_counter()
        self._write(response.to_bytes(is_last, with_body=request.method != "HEAD"))
        if is_last:
            self._end()
        elif self._waiting:
            # Not at once: a thousand of them, each answered at once, would be a thousand calls deep.
            asyncio.get_running_loop().call_soon(self._next)
        elif self._paused:
            self._resume_reading()

    def _next(self) -> None:
        """Starts the request that waits, if there is one and its answer can be written."""
        if self._current is not None or not self._writable or self._transport is None:
            return
        if self._waiting:
            self._start(self._waiting.popleft())
        elif self._paused:
            self._resume_reading()

    def _resume_reading(self) -> None:
        assert self._transport is not None
        self._paused = False
        self._transport.resume_reading()

    def _refuse(self, error: ServingError) -> None:
        """Answers what cannot be read as a request, after those before it. Nothing behind it can be read either."""
        self._discarding = True
        # Behind the end that a client has announced nothing is answered.
        if self._transport is not None and not self._transport.is_closing():
            self._receive(self._reader.unfinished(error))

    def _end(self) -> None:
        """After the last answer."""
        self._waiting.clear()
        if not self._discarding:
            self._close()
        elif self._transport is not None and not self._transport.is_closing():
            # Our direction only: closed while bytes still arrive, the connection would be reset, the answer lost.
            if self._transport.can_write_eof():
                self._transport.write_eof()
            if self._paused:
                self._resume_reading()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _close(self) -> None:
        if self._transport is not None:
            self._idle_since = time.perf_counter()
            self._transport.close()


async def watch(connections: Collection[HttpConnection]) -> None:
    """Looks at the clock for all connections, again and again until it is cancelled."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        now = time.perf_counter()
        for connection in tuple(connections):
            connection.look_at_clock(now)
