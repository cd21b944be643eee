"""The HTTP of one connection, over an application that echoes."""

import asyncio

import pytest

from serving.server.http_connection import watch
from tests.serving.echo_line import Line, exchange
from tests.serving.http_exchange import raw_request


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_request_may_arrive_in_any_pieces(size):
    raw = raw_request("POST", "/a?query=1", b"body", {"X-Thing": "Value"})

    async def test(line):
        for _ in range(2):
            line.send(*(raw[at : at + size] for at in range(0, len(raw), size)))
            answer = await line.wire.answer()
            assert (answer.status, answer.body) == (200, b"/a body")
            assert "connection" not in answer.headers
        (request, _) = line.echo.requests
        assert (request.method, request.headers[b"x-thing"]) == ("POST", b"Value")
        assert not line.wire.closed

    exchange(test)


def test_chunks():
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def test(line):
        line.send(head, b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n")
        assert (await line.wire.answer()).body == b"/a abcde"
        line.send(head, b"40\r\n" + b"a" * 64 + b"\r\n", b"40\r\n" + b"a" * 64)
        assert (await line.wire.answer()).status == 413

    exchange(test)


def test_requests_that_are_sent_ahead_are_answered_in_their_order():
    async def test(line):
        line.send(raw_request("GET", "/later"), b"".join(raw_request("GET", f"/{n}") for n in range(3000)))
        await asyncio.sleep(0)
        assert len(line.echo.requests) == 1
        assert not line.wire.reading
        line.echo.later[0]()
        bodies = [(await line.wire.answer()).body for _ in range(3001)]
        assert bodies == [b"/later ", *(b"/%d " % n for n in range(3000))]
        assert line.wire.reading

    exchange(test)


def test_a_client_that_does_not_read_is_not_worked_for():
    async def test(line):
        line.connection.pause_writing()
        line.send(raw_request("GET", "/1"), raw_request("GET", "/2"))
        await asyncio.sleep(0.01)
        assert not line.echo.requests
        line.connection.resume_writing()
        assert [(await line.wire.answer()).body for _ in range(2)] == [b"/1 ", b"/2 "]

    exchange(test)


@pytest.mark.parametrize(
    ("raw", "status", "message"),
    [
        (b"\x00\x01\r\n\r\n", 400, "Malformed HTTP request"),
        (b"GET\r\n\r\n", 400, "Malformed HTTP request"),
        (raw_request("POST", "/", b"", {"Content-Length": "101"}), 413, "at most 100 bytes"),
        (raw_request("POST", "/", b"", {"Content-Length": "9" * 17}), 413, "at most 100 bytes"),
        (raw_request("POST", "/", b"", {"Content-Length": "-1"}), 400, "Malformed HTTP request"),
        (b"GET /" + b"a" * 70_000, 431, "at most 65536 bytes"),
        (b"GET / HTTP/1.1\r\n" + b"X-Thing: a\r\n" * 7000, 431, "at most 65536 bytes"),
    ],
)
def test_what_is_no_request_is_refused_and_nothing_after_it_is_read(raw, status, message):
    async def test(line):
        line.send(raw)
        answer = await line.wire.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert message in answer.error
        line.send(b"more", raw_request("GET", "/a"))
        assert (line.wire.ended, line.wire.written, line.echo.requests) == (True, b"", [])

    exchange(test)


def test_a_broken_request_behind_good_ones_does_not_cost_their_answers():
    async def test(line):
        good = [raw_request("GET", path) for path in ("/later", "/1", "/2")]
        line.send(b"".join(good) + b"\x00\x01\r\n\r\n" + raw_request("GET", "/3"))
        line.echo.later[0]()
        answers = [await line.wire.answer() for _ in range(4)]
        assert [answer.body for answer in answers[:3]] == [b"/later ", b"/1 ", b"/2 "]
        assert [answer.headers.get("connection") for answer in answers] == [None, None, None, "close"]
        assert answers[3].status == 400
        assert "Malformed HTTP request" in answers[3].error
        # What still arrives is read, and thrown away: unread, it would reset the connection.
        assert (line.wire.ended, line.wire.reading, line.wire.written) == (True, True, b"")

    exchange(test)


@pytest.mark.parametrize("path", ["/a", "/later"])
def test_what_follows_an_announced_end_is_ignored(path):
    async def test(line):
        line.send(raw_request("GET", path, b"", {"Connection": "close"}) + raw_request("GET", "/b"))
        for answer in line.echo.later:
            answer()
        answer = await line.wire.answer()
        assert (answer.body, answer.headers["connection"]) == (path.encode() + b" ", "close")
        line.connection.resume_writing()
        assert (line.wire.written, len(line.echo.requests)) == (b"", 1)

    exchange(test)


@pytest.mark.parametrize(
    "raw", [b"POST /a HTTP/1.1\r\nHo", raw_request("POST", "/a", b"half", {"Content-Length": "50"})]
)
def test_half_a_request_is_timed_out_and_a_trickle_does_not_buy_time(raw):
    async def test(line):
        for at in range(len(raw)):
            line.send(raw[at : at + 1])
        line.pass_time(29)
        assert line.wire.written == b""
        line.pass_time(31)
        answer = await line.wire.answer()
        assert (answer.status, answer.error) == (408, "The request did not arrive in time.")
        assert not line.wire.closed
        line.pass_time(3)
        assert line.wire.closed
        assert not line.echo.requests

    exchange(test)


def test_a_silent_connection_is_closed_and_one_that_waits_for_its_answer_is_not():
    async def test(line):
        line.pass_time(74)
        line.send(raw_request("GET", "/later"))
        line.pass_time(1000)
        line.echo.later[0]()
        assert (await line.wire.answer()).status == 200
        line.pass_time(74)
        assert not line.wire.closed
        line.pass_time(76)
        assert line.wire.closed
        assert line.wire.written == b""

    exchange(test)


@pytest.mark.parametrize("raw", [raw_request("GET", "/a"), raw_request("GET", "/a", b"", {"Connection": "close"})])
def test_who_never_reads_the_answer_does_not_keep_the_connection(raw):
    async def test(line):
        line.wire.is_read = False
        line.send(raw)
        line.pass_time(76)
        await asyncio.sleep(0)
        assert line.wire.closed
        if b"close" not in raw:
            assert line.connections
            line.pass_time(74)
            await asyncio.sleep(0)
            assert line.connections
            line.pass_time(76)
            await asyncio.sleep(0)
        assert not line.connections

    exchange(test)


def test_all_connections_are_watched():
    async def test(line):
        line.send(b"GET")
        watching = asyncio.create_task(watch(line.connections))
        assert (await line.wire.answer()).status == 408
        watching.cancel()

    exchange(test, receive_seconds=0.01)


@pytest.mark.parametrize(
    "raw", [raw_request("GET", "/a", b"", {"Connection": "close"}), b"GET /a HTTP/1.0\r\nHost: x\r\n\r\n"]
)
def test_the_connection_closes_when_the_client_wants_it(raw):
    async def test(line):
        line.send(raw)
        answer = await line.wire.answer()
        assert (answer.body, answer.headers["connection"]) == (b"/a ", "close")
        assert line.wire.closed
        await asyncio.sleep(0)
        assert not line.connections

    exchange(test)


def test_a_client_that_hangs_up_cancels_its_request():
    async def test(line):
        line.send(raw_request("GET", "/later"))
        line.wire.close()
        await asyncio.sleep(0)
        assert line.echo.cancelled == 1
        line.echo.later[0]()
        assert line.wire.written == b""

    exchange(test)


def test_a_client_may_end_its_direction_and_still_get_its_answers():
    async def test(line):
        line.send(raw_request("GET", "/later") + raw_request("GET", "/1") + raw_request("GET", "/2"))
        assert line.connection.eof_received()
        line.echo.later[0]()
        assert [(await line.wire.answer()).body for _ in range(3)] == [b"/later ", b"/1 ", b"/2 "]
        assert line.wire.closed

    exchange(test)


def test_shutdown_answers_what_has_begun():
    async def test(line):
        idle = Line()
        idle.connection.shutdown()
        assert idle.wire.closed
        raw = raw_request("GET", "/a")
        line.send(raw[:10])
        line.connection.shutdown()
        assert not line.wire.closed
        line.send(raw[10:])
        assert (await line.wire.answer()).headers["connection"] == "close"
        assert line.wire.closed

    exchange(test)


def test_expect_head_and_upgrade():
    async def test(line):
        raw = raw_request("POST", "/a", b"body", {"Expect": "100-continue"})
        line.send(raw[:-4])
        assert (await line.wire.answer()).status == 100
        line.send(raw[-4:])
        assert (await line.wire.answer()).body == b"/a body"
        line.send(raw_request("HEAD", "/a"))
        head, _, body = line.wire.written.partition(b"\r\n\r\n")
        assert b"content-length: 3" in head
        assert body == b""
        line.wire.written = b""
        line.send(raw_request("GET", "/a", b"", {"Connection": "Upgrade", "Upgrade": "h2c"}))
        assert (await line.wire.answer()).body == b"/a "

    exchange(test)
