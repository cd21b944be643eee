"""HTTP over real sockets: requests as bytes, answers taken apart, and a REST interface over a model in memory."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from serving.server.rest import make_rest_app
from serving.server.service import Service
from serving.server.settings import Settings
from serving.web_app import WebApp
from serving.web_server import bind, serving

PREDICT = "/v1/models/cmimh:predict"
# Nothing takes this long, not even on a busy machine.
PATIENCE = 120.0


class Answer:
    """One HTTP answer, taken apart; `rest` are the bytes behind it."""

    def __init__(self, raw: bytes, has_body: bool = True):
        head, _, rest = raw.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(status.split(" ")[1])
        self.headers = dict(line.split(": ", 1) for line in lines)
        length = int(self.headers.get("content-length", 0)) if has_body else 0
        self.body, self.rest = rest[:length], rest[length:]
        self.is_whole = b"\r\n\r\n" in raw and len(self.body) == length

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        (error,) = self.json.values()
        assert list(self.json) == ["error"]
        return error


class Client:
    """A connection that sends bytes and reads answers."""

    def __init__(self, port: int, timeout: float = PATIENCE):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self._received = b""

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self, has_body: bool = True) -> Answer:
        """The next answer; one to HEAD has no body. Raises EOFError if the server closes the connection first."""
        while b"\r\n\r\n" not in self._received or not Answer(self._received, has_body).is_whole:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError(self._received)
            self._received += data
        answer = Answer(self._received, has_body)
        self._received = answer.rest
        return answer

    def is_closed(self) -> bool:
        """Waits until the server closes the connection; False if it sends something instead."""
        try:
            return not self._received and not self.socket.recv(1)
        except ConnectionResetError:
            return True

    def unread_bytes(self) -> int | None:
        """How much of what was sent the server has not read yet; None if its end of the connection is gone."""
        ends = [self.socket.getpeername()[1], self.socket.getsockname()[1]]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, *addresses, _, queues = line.split()[:5]
            if [int(address.split(":")[1], 16) for address in addresses] == ends:
                return int(queues.split(":")[1], 16)
        return None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_) -> None:
        self.socket.close()


def raw_request(method, path, body=b"", headers=None) -> bytes:
    """A request as it is sent; a body that is not bytes becomes JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": "x", "Content-Length": str(len(content)), **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


@dataclass
class RunningService:
    """A service with its REST interface on a free port."""

    service: Service
    app: WebApp
    port: int

    @property
    def metrics(self):
        return self.service.metrics

    @property
    def stopping(self):
        return self.app.stopping

    @stopping.setter
    def stopping(self, value):
        self.app.stopping = value


@contextlib.asynccontextmanager
async def running_service(store, **settings):
    """A service over models that are loaded."""
    service = Service(Settings(model_base=Path("unused"), **{"shutdown_timeout": 5, **settings}), store)
    app = make_rest_app(service)
    listener = bind(app.settings, 0)
    port = listener.getsockname()[1]
    try:
        async with serving(app, listener):
            yield RunningService(service, app, port)
    finally:
        service.close()


def exchange(port, raw) -> Answer:
    """The answer to bytes on a connection of their own."""
    with Client(port) as client:
        # A server that does not want the body may close the connection before all of it is sent, after its answer.
        with contextlib.suppress(ConnectionError):
            client.send(raw)
        return client.answer()


async def ask(service, method, path, body=b"", headers=None) -> Answer:
    """The answer to one request on a connection of its own."""
    return await asyncio.to_thread(exchange, service.port, raw_request(method, path, body, headers))


def run(store, *requests, **settings):
    """The answers to requests, each the arguments of `ask`; the answer itself if there is only one."""

    async def main():
        async with running_service(store, **settings) as service:
            return [await ask(service, *request) for request in requests]

    answers = asyncio.run(asyncio.wait_for(main(), PATIENCE))
    return answers[0] if len(answers) == 1 else answers


def predict(signature, **content):
    """A Predict request, for `run`."""
    return ("POST", PREDICT, {"signature_name": signature, **content})


def b64(value: bytes) -> dict[str, str]:
    """TF Serving's notation for bytes."""
    return {"b64": base64.b64encode(value).decode()}
