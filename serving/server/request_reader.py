"""Bytes into whole HTTP/1.1 requests, under limits of size. The parser is httptools'."""

from __future__ import annotations

import time
from collections.abc import Callable

import httptools

from serving.server.errors import ServingError, invalid_argument
from serving.server.http_messages import Request

_MAX_HEADER_BYTES = 1 << 16
_MAX_LENGTH_DIGITS = 18


class RequestReader:
    """Reads the requests of one connection.

    Args:
        max_body_bytes: a longer body is a 413.
        receive: takes each request, once it is whole.
        go_on: called when a client waits for a word before it sends the body.

    Attributes:
        receiving: whether a request has begun that is not whole yet.
        started: when it began, by `time.perf_counter`.
    """

    def __init__(self, max_body_bytes: int, receive: Callable[[Request], None], go_on: Callable[[], None]):
        self.receiving = False
        self.started = 0.0
        self._max_body_bytes = max_body_bytes
        self._receive = receive
        self._go_on = go_on
        self._parser = httptools.HttpRequestParser(self)
        self._has_headers = False
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._header_bytes = self._body_bytes = 0

    def feed(self, data: bytes) -> None:
        """Takes what has arrived. After an error nothing more can be read.

        Raises:
            ServingError: INVALID_ARGUMENT for what is no request, with the status 413 or 431 for too much of one.
        """
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, ServingError):
                raise
            raise error.__context__ from None
        except httptools.HttpParserUpgrade:
            raise
        except httptools.HttpParserError as error:
            raise invalid_argument(f"Malformed HTTP request: {error}") from None
        if self.receiving and not self._has_headers:
            self._header_bytes += len(data)
            if self._header_bytes > _MAX_HEADER_BYTES:
                message = f"The headers must have at most {_MAX_HEADER_BYTES} bytes. Received: more."
                raise ServingError("INVALID_ARGUMENT", message, 431)

    def on_message_begin(self) -> None:
        """This and what follows is called by the parser."""
        self.receiving, self._has_headers = True, False
        self.started = time.perf_counter()
        self._url, self._headers, self._body = b"", {}, []
        self._header_bytes = self._body_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        headers = self._headers
        self._has_headers = True
        length = headers.get(b"content-length", b"0")
        # More digits than any limit has, and too many for Python to read as a number.
        if len(length) > _MAX_LENGTH_DIGITS or int(length) > self._max_body_bytes:
            raise self._too_large()
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self._go_on()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body_bytes:
            raise self._too_large()

    def on_message_complete(self) -> None:
        self.receiving = False
        self._receive(
            Request(
                self._parser.get_method().decode("ascii"),
                self._url.partition(b"?")[0],
                self._headers,
                self._body[0] if len(self._body) == 1 else b"".join(self._body),
                self.started,
                self._parser.should_keep_alive(),
            )
        )

    def _too_large(self) -> ServingError:
        message = f"The body must have at most {self._max_body_bytes} bytes. Received: more."
        return ServingError("INVALID_ARGUMENT", message, 413)
