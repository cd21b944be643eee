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
        self._fields: list[tuple[bytes, bytes]] = []
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        # Those of a line are counted when it ends; until then the reads that brought nothing else are.
        self._header_bytes = self._body_bytes = self._line_bytes = 0

    def feed(self, data: bytes) -> None:
        """Takes what has arrived. After an error nothing more can be read.

        Raises:
            ServingError: INVALID_ARGUMENT for what is no request, with the status 413 or 431 for too much of one.
        """
        self._line_bytes += len(data)
        try:
            head_end = self._parse(data)
            if head_end is not None:
                self._ignore_offers(memoryview(data), head_end)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, ServingError):
                raise
            raise error.__context__ from None
        except httptools.HttpParserError as error:
            raise invalid_argument(f"Malformed HTTP request: {error}") from None
        if self.receiving and self._line_bytes > _MAX_HEADER_BYTES:
            raise _too_long()

    def unfinished(self, error: ServingError) -> Request:
        """What has arrived of the request that is refused with this error."""
        method, path = b"-", b"-"
        if self.receiving and self._url:
            method, path = self._parser.get_method(), self._url.partition(b"?")[0]
        headers = {name.lower(): value for name, value in self._fields} if self.receiving else {}
        started = self.started if self.receiving else time.perf_counter()
        return Request(method.decode("ascii"), path, headers, b"", started, keep_alive=False, refusal=error)

    def on_message_begin(self) -> None:
        """This and what follows is called by the parser."""
        # Still receiving, it is the same request again, without an offer.
        if not self.receiving:
            self.started = time.perf_counter()
        self.receiving, self._has_headers = True, False
        self._url, self._fields, self._body = b"", [], []
        self._header_bytes = self._body_bytes = self._line_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._count_header(len(url))
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value) + len(b": \r\n"))
        # What follows the body would overwrite what was said, and checked, before it.
        if not self._has_headers:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        if self._parser.should_upgrade():
            if self._parser.get_method() == b"CONNECT":
                raise invalid_argument("The method must not be CONNECT: this is no proxy. Received: CONNECT.")
            return
        headers = self._headers = {name.lower(): value for name, value in self._fields}
        self._has_headers = True
        length = headers.get(b"content-length", b"0")
        # More digits than any limit has, and too many for Python to read as a number.
        if len(length) > _MAX_LENGTH_DIGITS or int(length) > self._max_body_bytes:
            raise self._too_large()
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self._go_on()

    def on_body(self, body: bytes) -> None:
        self._line_bytes = 0
        self._body.append(body)
        self._body_bytes += len(body)
        if self._body_bytes > self._max_body_bytes:
            raise self._too_large()

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
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

    def _parse(self, data: bytes | memoryview) -> int | None:
        """Returns None, or where a head ends that offers another protocol; what is behind it was not read."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            return int(offer.args[0])
        return None

    def _ignore_offers(self, data: memoryview, head_end: int | None) -> None:
        """Reads on after a head that offers another protocol, which a server may ignore (RFC 9110, 7.8).

        The parser takes all that follows such a head for the other protocol. So a new one gets the same head without
        the offer, and then the rest, in which there may be further offers.
        """
        while head_end is not None:
            fields = [b"%b: %b\r\n" % field for field in self._fields if field[0].lower() != b"upgrade"]
            request_line = (self._parser.get_method(), self._url, self._parser.get_http_version().encode("ascii"))
            head = b"%b %b HTTP/%b\r\n%b\r\n" % (*request_line, b"".join(fields))
            self._parser = httptools.HttpRequestParser(self)
            self._parse(head)
            data = data[head_end:]
            head_end = self._parse(data)

    def _count_header(self, size: int) -> None:
        self._line_bytes = 0
        self._header_bytes += size
        if self._header_bytes > _MAX_HEADER_BYTES:
            raise _too_long()

    def _too_large(self) -> ServingError:
        message = f"The body must have at most {self._max_body_bytes} bytes. Received: more."
        return ServingError("INVALID_ARGUMENT", message, 413)


def _too_long() -> ServingError:
    message = f"The headers must have at most {_MAX_HEADER_BYTES} bytes. Received: more."
    return ServingError("INVALID_ARGUMENT", message, 431)
