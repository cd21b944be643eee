"""A connection is kept open after an answer, or the answer says that it will be closed.

A client without that notice sends its next request on the same connection, and loses it.
"""

import asyncio
import contextlib
import time

import pytest

from serving.web_app import Request, Response, Route, WebApp
from serving.web_server import WebSettings, bind, serving
from tests.serving.http_exchange import PATIENCE, Client
from tests.serving.service_thread import in_thread

MAX_BODY_BYTES = 10_000
NEXT = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /%b HTTP/1.1\r\nHost: x\r\n%b\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


async def read(request: Request) -> Response:
    return Response(b"%d" % len(await request.body()))


async def ignore(request: Request) -> Response:
    return Response(b"ignored")


async def read_slowly(request: Request) -> Response:
    body = await request.body()
    await asyncio.sleep(0.3)  # so long that the connection is watched
    return Response(b"%d" % len(body))


def make_app(request_timeout):
    routes = [Route(method, f"/{handler.__name__}", handler, is_public=True)
              for method in ("GET", "POST") for handler in (read, ignore, read_slowly)]  # fmt: skip
    routes += [Route("GET", "/next", ignore, is_public=True), Route("POST", "/secret", read)]
    settings = WebSettings(
        max_body_bytes=MAX_BODY_BYTES, request_timeout=request_timeout, shutdown_timeout=5, token="a token of the tests"
    )
    return WebApp(routes, settings)


def running(app):
    """Runs an application; the context is its port."""

    @contextlib.asynccontextmanager
    async def service():
        listener = bind(app.settings, 0)
        number = listener.getsockname()[1]
        async with serving(app, listener):
            yield number

    return in_thread(service)


@pytest.fixture(scope="module")
def port():
    with running(make_app(request_timeout=PATIENCE)) as port:
        yield port


def length(number):
    return b"Content-Length: %d\r\n" % number


@pytest.mark.parametrize(
    ("first", "rest", "status"),
    [
        (POST % (b"read", length(3)) + b"abc", b"", 200),
        (POST % (b"read_slowly", length(3)) + b"abc", b"", 200),
        (POST % (b"read", length(0)), b"", 200),
        (POST % (b"ignore", length(3)) + b"abc", b"", 200),
        (POST % (b"ignore", length(0)), b"", 200),
        # A client sends headers and body one after the other, and the body is late.
        (POST % (b"ignore", length(3)), b"abc", 200),
        (POST % (b"ignore", length(3)) + b"a", b"bc", 200),
        (POST % (b"secret", length(3)), b"abc", 401),
        (POST % (b"nowhere", length(3)), b"abc", 404),
        (POST % (b"nowhere", CHUNKED), b"3\r\nabc\r\n0\r\n\r\n", 404),
        (POST % (b"nowhere", CHUNKED) + b"3\r\nabc\r\n", b"0\r\n\r\n", 404),
        (POST % (b"read", CHUNKED) + b"3\r\nabc\r\n0\r\n\r\n", b"", 200),
        (POST % (b"read", CHUNKED + b"Trailer: X\r\n") + b"3\r\nabc\r\n0\r\nX: 1\r\n\r\n", b"", 200),
        (POST % (b"read", CHUNKED) + b"3\r\nabc\r\nnot a size\r\n", b"", 400),
        (POST % (b"ignore", CHUNKED) + b"3\r\nabc\r\nnot a size\r\n", b"", 200),
        (POST % (b"read", length(MAX_BODY_BYTES + 1)) + b"a" * 10, b"a" * (MAX_BODY_BYTES - 9), 413),
        (POST % (b"read", length(MAX_BODY_BYTES + 1)) + b"a" * (MAX_BODY_BYTES + 1), b"", 413),
        (POST % (b"read", CHUNKED) + b"2711\r\n" + b"a" * 10_001 + b"\r\n", b"0\r\n\r\n", 413),
        (POST % (b"read", b"Expect: 100-continue\r\n" + length(MAX_BODY_BYTES + 1)), b"a" * (MAX_BODY_BYTES + 1), 413),
        (POST % (b"ignore", b"Expect: 100-continue\r\n" + length(3)), b"abc", 200),
        (POST % (b"read", b"Content-Encoding: br\r\n" + length(3)) + b"abc", b"", 400),
        (NEXT.replace(b"/next", b"/" + b"a" * 2000), b"", 404),
        (NEXT.replace(b"/next", b"/" + b"a" * 70_000), b"", 414),
        (b"not HTTP\r\n\r\n", b"", 400),
        (NEXT.replace(b"GET", b"HEAD"), b"", 404),
    ],
)  # fmt: skip
def test_the_connection_is_kept_or_its_end_is_announced(port, first, rest, status):
    with Client(port) as client:
        client.send(first)
        answer = client.answer(has_body=not first.startswith(b"HEAD"))
        assert answer.status == status
        if answer.headers.get("connection") != "close":
            client.send(rest, NEXT)
            assert client.answer().body == b"ignored"
        # After an announced end, Granian sometimes closes the connection only when the client does.


def test_many_requests_use_one_connection(port):
    """In particular those whose body nobody reads."""
    with Client(port) as client:
        for number in range(30):
            path, status = ((b"read", 200), (b"ignore", 200), (b"secret", 401), (b"nowhere", 404))[number % 4]
            client.send(POST % (path, length(3)))
            time.sleep(0.01)
            client.send(b"abc")
            answer = client.answer()
            assert (answer.status, answer.headers.get("connection")) == (status, None)


@pytest.mark.parametrize("body", [length(3) + b"\r\nab", CHUNKED + b"\r\n3\r\nabc\r\n"])
def test_a_body_that_is_late_ends_the_connection_openly(body):
    with running(make_app(request_timeout=1.0)) as port, Client(port) as client:
        client.send(POST[:-2] % (b"read", body))
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")


def test_a_server_that_is_stopping_announces_the_end_of_its_connections():
    app = make_app(request_timeout=PATIENCE)
    with running(app) as port, Client(port) as client:
        client.send(NEXT)
        assert "connection" not in client.answer().headers
        app.stopping = True
        client.send(NEXT)
        assert client.answer().headers["connection"] == "close"
        assert client.is_closed()
