"""What is read as one request: its head, its body, and nothing of what follows."""

import pytest

from tests.serving.echo_line import Line, exchange
from tests.serving.http_exchange import raw_request

OFFER = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAA"}
OFFERED_CHUNKS = raw_request("POST", "/a", b"", {**OFFER, "Transfer-Encoding": "chunked"}).replace(
    b"Content-Length: 0\r\n", b""
)


@pytest.mark.parametrize("size", [1, 30, 1000])
@pytest.mark.parametrize(
    "raw",
    [
        raw_request("POST", "/a", b"GET /b HTTP/1.1\r\n\r\n", OFFER),
        OFFERED_CHUNKS + b"6\r\nGET /b\r\nd\r\n HTTP/1.1\r\n\r\n\r\n0\r\n\r\n",
    ],
)
def test_an_offer_of_another_protocol_is_ignored_and_the_body_is_read(raw, size):
    async def test(line):
        for _ in range(2):
            line.send(*(raw[at : at + size] for at in range(0, len(raw), size)))
            answer = await line.wire.answer()
            assert (answer.status, answer.body) == (200, b"/a GET /b HTTP/1.1\r\n\r\n")
            assert "connection" not in answer.headers
        assert [request.path for request in line.echo.requests] == [b"/a", b"/a"]
        assert line.echo.requests[0].headers[b"http2-settings"] == b"AAEAAEAA"
        assert not line.wire.closed

    exchange(test)


def test_offers_that_are_sent_ahead_are_answered_in_their_order():
    async def test(line):
        raw = [raw_request("POST", f"/{number}", b"body", OFFER) for number in range(2000)]
        line.send(b"".join(raw) + raw_request("GET", "/last", b"", {**OFFER, "Connection": "Upgrade, close"}))
        bodies = [(await line.wire.answer()).body for _ in range(2000)]
        assert bodies == [b"/%d body" % number for number in range(2000)]
        last = await line.wire.answer()
        assert (last.body, last.headers["connection"]) == (b"/last ", "close")
        assert line.wire.closed

    exchange(test)


def test_an_offer_does_not_lift_the_limits_or_buy_time():
    async def test(line):
        raw = raw_request("POST", "/a", b"half", {**OFFER, "Content-Length": "50", "Expect": "100-continue"})
        line.send(raw)
        assert (await line.wire.answer()).status == 100
        assert line.wire.written == b""
        line.pass_time(31)
        assert (await line.wire.answer()).status == 408
        other = Line()
        other.send(raw_request("POST", "/a", b"", {**OFFER, "Content-Length": "101"}))
        assert (await other.wire.answer()).status == 413

    exchange(test)


def test_connect_is_refused_and_what_follows_is_not_read():
    async def test(line):
        line.send(b"CONNECT a:80 HTTP/1.1\r\nHost: x\r\n\r\n" + raw_request("GET", "/a"), raw_request("GET", "/a"))
        answer = await line.wire.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert answer.error == "The method must not be CONNECT: this is no proxy. Received: CONNECT."
        assert (line.wire.written, line.echo.requests) == (b"", [])

    exchange(test)


CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nX-Thing: real\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n"


def test_trailers_are_no_headers():
    async def test(line):
        line.send(CHUNKED + b"X-Thing: forged\r\nX-Other: 1\r\n\r\n", raw_request("GET", "/b"))
        assert [(await line.wire.answer()).body for _ in range(2)] == [b"/a abc", b"/b "]
        first, second = line.echo.requests
        assert first.headers == {b"host": b"x", b"x-thing": b"real", b"transfer-encoding": b"chunked"}
        assert b"x-other" not in second.headers

    exchange(test)


LONG_LINES = [f"X-Thing-{number}: {'a' * 100}\r\n".encode() for number in range(2000)]


@pytest.mark.parametrize(
    "parts",
    [
        [b"GET / HTTP/1.1\r\n" + b"".join(LONG_LINES) + b"\r\n"],
        [b"GET / HTTP/1.1\r\n", *LONG_LINES],
        [b"GET / HTTP/1.1\r\nX-Thing: " + b"a" * 70_000 + b"\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nX-Thing: ", *[b"a" * 1000] * 70],
        [CHUNKED + b"".join(LONG_LINES)],
        [CHUNKED, *LONG_LINES],
        [CHUNKED + b"X-Thing: ", *[b"a" * 1000] * 70],
        [b"GET /", *[b"a" * 1000] * 70],
    ],
)
def test_headers_and_trailers_are_limited_however_they_arrive(parts):
    async def test(line):
        line.send(*parts)
        answer = await line.wire.answer()
        assert (answer.status, answer.error) == (431, "The headers must have at most 65536 bytes. Received: more.")
        assert (line.wire.written, line.echo.requests) == (b"", [])

    exchange(test)


@pytest.mark.parametrize("cut", [3, 20, 40])
def test_what_follows_a_large_body_in_one_read_is_no_large_header(cut):
    async def test(line):
        body, raw = b"a" * 200_000, raw_request("GET", "/b")
        line.send(raw_request("POST", "/a", body) + raw[:cut], raw[cut:])
        assert [(await line.wire.answer()).body for _ in range(2)] == [b"/a " + body, b"/b "]

    exchange(test, max_body_bytes=1_000_000)


def test_a_body_in_many_reads_is_no_large_header():
    async def test(line):
        line.send(raw_request("POST", "/a", b"", {"Content-Length": "200000"}), *[b"a" * 1000] * 200)
        assert (await line.wire.answer()).body == b"/a " + b"a" * 200_000

    exchange(test, max_body_bytes=1_000_000)
