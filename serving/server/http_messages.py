"""A request and its answer, and what turns one into the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

from serving.server.errors import ServingError

JSON = b"application/json"
_STATUSES = {status.value: f"{status.value} {status.phrase}".encode() for status in HTTPStatus}


@dataclass(slots=True)
class Request:
    """One request: whole, or what has arrived of one that HTTP refuses.

    Attributes:
        method: of HTTP, such as "POST"; "-" if it is not known.
        path: as it was sent, without the query; "-" if it is not known.
        headers: by name in lower case; of several with one name the last.
        body: as it was sent.
        started: `time.perf_counter()` at its first byte.
        keep_alive: whether the connection stays open after it.
        refusal: why there is no more of it, which is its answer; None if it is whole.
    """

    method: str
    path: bytes
    headers: dict[bytes, bytes]
    body: bytes
    started: float
    keep_alive: bool
    refusal: ServingError | None = None


@dataclass(slots=True)
class Response:
    """An answer; `headers` are those beside type, length and request id."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()
    request_id: bytes = b"-"

    def to_bytes(self, closing: bool, with_body: bool) -> bytes:
        """What goes over the wire.

        Args:
            closing: whether the connection ends after it.
            with_body: not for HEAD.
        """
        more = b"".join([b"%b: %b\r\n" % header for header in self.headers]) if self.headers else b""
        return b"HTTP/1.1 %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b\r\n%b" % (
            _STATUSES.get(self.status) or b"%d " % self.status,
            self.content_type,
            len(self.body),
            self.request_id,
            more,
            b"connection: close\r\n" if closing else b"",
            self.body if with_body else b"",
        )


Respond = Callable[[Response], None]
Cancel = Callable[[], None]


class Application(Protocol):
    """What answers requests."""

    def answer(self, request: Request, respond: Respond) -> Cancel | None:
        """Calls `respond` once, now or later; what it returns is called if the client hangs up before."""
