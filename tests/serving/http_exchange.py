"""HTTP in memory: requests as bytes into an `HttpConnection`, answers as bytes out of it, without sockets."""

from __future__ import annotations

import asyncio
import json

from serving.server.http_connection import HttpConnection


class Answer:
    """One HTTP answer, taken apart."""

    def __init__(self, raw: bytes):
        head, _, rest = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split(" ")[1])
        self.headers = dict(line.split(": ", 1) for line in lines)
        length = int(self.headers.get("content-length", 0))
        self.body, self.rest = rest[:length], rest[length:]
        self.is_whole = len(self.body) == length

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        (error,) = self.json.values()
        assert list(self.json) == ["error"]
        return error


class Wire(asyncio.Transport):
    """A transport that keeps what is written; `changed` is set whenever something happens.

    With `is_read` false nobody takes what was written: closed, it waits for that until it is aborted.
    """

    def __init__(self, protocol: HttpConnection):
        super().__init__()
        self.written, self.closed, self.reading, self.ended, self.is_read = b"", False, True, False, True
        self.changed = asyncio.Event()
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data):
        assert not self.ended
        self.written += data
        self.changed.set()

    def write_eof(self):
        self.ended = True

    def can_write_eof(self):
        return True

    def is_closing(self):
        return self.closed

    def close(self):
        if not self.closed:
            self.closed = True
            if self.is_read:
                self.abort()
            self.changed.set()

    def abort(self):
        self.closed = True
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    async def wait_until(self, condition, seconds=30):
        """Until `condition()` holds."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            self.changed.clear()
            await asyncio.wait_for(self.changed.wait(), deadline - asyncio.get_running_loop().time())

    async def answer(self) -> Answer:
        """The next answer, which is taken off the wire."""
        await self.wait_until(lambda: b"\r\n\r\n" in self.written and Answer(self.written).is_whole)
        answer = Answer(self.written)
        self.written = answer.rest
        return answer


def raw_request(method, path, body=b"", headers=None) -> bytes:
    """A request as it goes over the wire; a body that is no bytes becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": "x", "Content-Length": str(len(content)), **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
