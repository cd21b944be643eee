"""Clients that break HTTP, or the server's patience: each is contained, and a good client is answered meanwhile."""

import base64
import contextlib
import gzip
import json
import select
import socket
import threading
import time
import zlib

import pytest

from serving.server.settings import Settings
from tests.serving.http_exchange import PATIENCE, PREDICT, Client, exchange, raw_request

TIMEOUT = 2.0
MAX_BODY_BYTES = 1 << 20
GOOD = {"signature_name": "hash_caption", "instances": ["a red cat"]}
# Which of the two it is depends on how much of the headers arrives at once.
TOO_LARGE = (400, 431)
HEAD = b"POST /v1/models/cmimh:predict HTTP/1.1\r\nHost: x\r\n"
H2C_OFFER = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAA"}


@pytest.fixture(scope="module")
def start(exported, serve):
    """`with start(request_timeout=2) as port:` runs a server."""

    @contextlib.contextmanager
    def started(**more):
        settings = Settings(
            model_base=exported.base, rest_port=0, grpc_port=None, shutdown_timeout=5, max_body_bytes=MAX_BODY_BYTES,
            max_enqueued_rows=10_000, **more,
        )  # fmt: skip
        with serve(settings) as addresses:
            yield addresses.rest_port

    return started


@pytest.fixture(scope="module")
def patient(start):
    with start(request_timeout=PATIENCE) as port:
        yield port


@pytest.fixture(scope="module")
def impatient(start):
    with start(request_timeout=TIMEOUT) as port:
        yield port


@pytest.fixture
def port(patient, exported):
    """A server whose time limits never run out. After each hostile client, a good one is answered."""
    yield patient
    assert code_of(exchange(patient, raw_request("POST", PREDICT, GOOD))) == expected_code(exported)


@pytest.fixture
def impatient_port(impatient, exported):
    """A server whose time limits run out after two seconds. After the test a good client is answered."""
    yield impatient
    assert code_of(good_answer(impatient)) == expected_code(exported)


def good_answer(port):
    """The answer to a good client, which tries again if its request exceeds the time limit on a busy machine."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(ConnectionError, EOFError):
            answer = exchange(port, raw_request("POST", PREDICT, GOOD))
            if answer.status not in (408, 504):
                assert answer.status == 200
                return answer
        assert time.monotonic() < deadline


def expected_code(exported):
    return exported.caption_codes(["a red cat"])[0].tobytes()


def code_of(answer):
    return base64.b64decode(answer.json["predictions"][0]["code_bytes"]["b64"])


def chunked(body, trailers=b"", headers=b""):
    return HEAD + headers + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers)


def send_until_closed(client, parts):
    """Sends what the server accepts; it may close the connection before all parts are sent."""
    with contextlib.suppress(ConnectionError):
        client.send(*parts)


def trickle_until_answered(client):
    """Sends single bytes until the server answers or closes the connection."""
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(ConnectionError):
        while not select.select([client.socket], [], [], 0.05)[0]:
            assert time.monotonic() < deadline
            client.send(b"a")


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_request_may_arrive_in_any_pieces(port, size):
    raw = raw_request("POST", PREDICT, GOOD)
    with Client(port) as client:
        for _ in range(2):
            client.send(*(raw[at : at + size] for at in range(0, len(raw), size)))
            assert client.answer().status == 200


def test_chunks(port):
    body = json.dumps(GOOD).encode()
    assert exchange(port, chunked(body)).status == 200
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    assert exchange(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n").status == 200


def test_trailers_are_not_headers(port):
    body = json.dumps(GOOD).encode()
    trailers = b"X-Request-Id: forged\r\nContent-Encoding: gzip\r\n"
    answer = exchange(port, chunked(body, trailers, b"Trailer: X-Request-Id, Content-Encoding\r\n"))
    assert (answer.status, answer.headers["x-request-id"] != "forged") == (200, True)
    # The server cannot distinguish trailers that were not announced from a malformed chunk.
    assert exchange(port, chunked(body, trailers)).status == 400


def test_pipelined_requests_are_answered_in_order(port, exported):
    captions = [f"{word} {number}" for number in range(20) for word in ("cat", "dog", "red bird", "tree")]
    requests = [
        raw_request("POST", PREDICT, {"signature_name": "hash_caption", "instances": [caption]}) for caption in captions
    ]
    with Client(port) as client:
        client.send(b"".join(requests))
        codes = [code_of(client.answer()) for _ in captions]
    assert codes == [code.tobytes() for code in exported.caption_codes(captions)]
    assert len(set(codes)) > 1


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x00\x01\x02\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (HEAD + b"Content-Length: -5\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1e9\r\n\r\n", 400),
        (HEAD + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", 400),
        (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400),
        (HEAD + b"Bad Header\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (chunked(json.dumps(GOOD).encode())[:-5] + b"zz\r\n", 400),
        (b"CONNECT a:80 HTTP/1.1\r\nHost: x\r\n\r\n", 404),
        (b"GET /" + b"a" * 66_000 + b" HTTP/1.1\r\n\r\n", 414),
        (HEAD + b"X-Thing: " + b"a" * 70_000 + b"\r\n\r\n", TOO_LARGE),
        (HEAD + (b"X-Thing: " + b"a" * 40_000 + b"\r\n") * 2 + b"\r\n", TOO_LARGE),
        (HEAD + b"X-Thing: a\r\n" * 7000 + b"\r\n", TOO_LARGE),
    ],
)
def test_malformed_http_is_rejected_and_the_connection_closed(impatient_port, raw, status):
    # Granian may keep a connection after a wrong request until the time limit.
    with Client(impatient_port) as client:
        send_until_closed(client, [raw])
        assert client.answer().status in (status if isinstance(status, tuple) else (status,))
        assert client.is_closed()


@pytest.mark.parametrize("head", [HEAD, chunked(b"abc")[:-2]])
def test_headers_and_trailers_without_end_are_cut_off(port, head):
    line = b"X-Thing: " + b"a" * 1000 + b"\r\n"
    # 5 MB, of which only the beginning is accepted.
    with Client(port) as client, pytest.raises(ConnectionError):
        client.send(head, *[line] * 5000)


@pytest.mark.parametrize("raw", [b"", b"POST /v1/mod", HEAD])
def test_headers_have_to_arrive_in_time_and_a_trickle_does_not_help(impatient_port, raw):
    started = time.monotonic()
    with Client(impatient_port) as client:
        client.send(raw)
        if raw:
            trickle_until_answered(client)
        assert client.is_closed()
    assert time.monotonic() - started > TIMEOUT - 0.2


@pytest.mark.parametrize(
    "head", [HEAD + b"Content-Length: 1000\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n"]
)
def test_a_body_has_to_arrive_in_time_and_a_trickle_does_not_help(impatient_port, head):
    started = time.monotonic()
    with Client(impatient_port) as client:
        client.send(head)
        trickle_until_answered(client)
        answer = client.answer()
    assert (answer.status, answer.error) == (408, "The request did not arrive in time.")
    assert time.monotonic() - started > TIMEOUT - 0.2


def test_a_body_that_is_too_large_is_rejected_even_if_the_client_sends_on(port):
    body = b"a" * (3 * MAX_BODY_BYTES)
    for raw in (raw_request("POST", PREDICT, body), chunked(body)):
        answer = exchange(port, raw)
        assert (answer.status, answer.error) == (
            413,
            f"The body must have at most {MAX_BODY_BYTES} bytes. Received: more.",
        )


def test_the_answer_arrives_although_the_body_is_not_wanted(port):
    body = b"a" * (MAX_BODY_BYTES // 2)
    for method, path, status in (("POST", "/nowhere", 404), ("GET", "/readyz", 200), ("PUT", PREDICT, 400)):
        for _ in range(5):
            assert exchange(port, raw_request(method, path, body)).status == status
        with Client(port) as client:
            client.send(raw_request(method, path, b"", {"Content-Length": "1000", "Expect": "100-continue"}))
            assert client.answer().status == status


def test_a_declared_length_beyond_the_limit_is_rejected_without_waiting_for_the_body(port):
    assert exchange(port, HEAD + b"Content-Length: 99999999999\r\n\r\nabc").status == 413


def gzip_bomb():
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range(4)) + packer.flush()
    assert len(bomb) < MAX_BODY_BYTES
    return raw_request("POST", PREDICT, bomb, {"Content-Encoding": "gzip"})


def test_a_gzip_bomb_is_not_unpacked(port):
    answer = exchange(port, gzip_bomb())
    assert (answer.status, answer.error) == (
        413, f"The body must have at most {MAX_BODY_BYTES} bytes. Received: more, once unpacked.",
    )  # fmt: skip


def test_gzip_chunks(port):
    raw = chunked(gzip.compress(json.dumps(GOOD).encode())).replace(b"Host: x", b"Host: x\r\nContent-Encoding: gzip")
    assert exchange(port, raw).status == 200


def test_an_offer_of_another_protocol_is_ignored_and_the_body_is_read(port):
    with Client(port) as client:
        client.send(raw_request("POST", PREDICT, GOOD, H2C_OFFER) * 3)
        assert [client.answer().status for _ in range(3)] == [200, 200, 200]
    raw = chunked(json.dumps(GOOD).encode()).replace(
        b"Host: x", b"Host: x\r\n" + "\r\n".join(f"{name}: {value}" for name, value in H2C_OFFER.items()).encode()
    )
    assert exchange(port, raw).status == 200


def test_expect_and_head(port):
    raw = raw_request("POST", PREDICT, GOOD, {"Expect": "100-continue"})
    head, body = raw[: raw.index(b"\r\n\r\n") + 4], raw[raw.index(b"\r\n\r\n") + 4 :]
    with Client(port) as client:
        client.send(head)
        assert client.answer().status == 100
        client.send(body)
        assert client.answer().status == 200
    with Client(port) as client:
        client.send(raw_request("HEAD", "/readyz", b"", {"Connection": "close"}))
        received = b""
        with contextlib.suppress(ConnectionError):
            while data := client.socket.recv(65536):
                received += data
        assert received.startswith(b"HTTP/1.1 404")
        assert received.endswith(b"\r\n\r\n")


def test_a_half_closed_connection_is_closed(port):
    for raw in (raw_request("POST", PREDICT, GOOD), HEAD + b"Content-Length: 50\r\n\r\n{"):
        with Client(port) as client:
            client.send(raw)
            client.socket.shutdown(socket.SHUT_WR)
            with contextlib.suppress(EOFError, ConnectionError):
                assert client.answer().status in (200, 400)


def test_a_client_that_never_reads_is_cut_off(impatient_port):
    body = {"signature_name": "hash_caption", "instances": ["a red cat"] * 4096}
    count, received = 10, 0
    with Client(impatient_port) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert client.unread_bytes() is not None
        send_until_closed(client, [raw_request("POST", PREDICT, body)] * count)
        deadline = time.monotonic() + PATIENCE
        while client.unread_bytes() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with contextlib.suppress(ConnectionError):
            while data := client.socket.recv(1 << 20):
                received += len(data)
    assert received < count * 4096 * 200


def test_many_hostile_clients_at_once_do_not_stop_a_good_one(impatient_port):
    """More at the same time than a request may last: some trickle, some are silent, some stop in the middle."""
    starts = [b"", b"POST /v1/mod", HEAD, HEAD + b"Content-Length: 1000\r\n\r\n{", chunked(b"abc")[:-2], b"\x00"]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(impatient_port)) for _ in range(300)]
        for number, client in enumerate(clients):
            send_until_closed(client, [starts[number % len(starts)]])
        stop = threading.Event()

        def trickle():
            while not stop.is_set():
                for client in clients:
                    send_until_closed(client, [b"a"])
                time.sleep(0.05)

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            for _ in range(20):
                good_answer(impatient_port)
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("kind", ["oversized", "gzip bomb", "pipelined", "half-closed"])
def test_a_good_client_is_answered_while_others_send_too_much(patient, exported, kind):
    raw = {
        "oversized": raw_request("POST", PREDICT, b"a" * (3 * MAX_BODY_BYTES)),
        "gzip bomb": gzip_bomb(),
        "pipelined": raw_request("POST", PREDICT, GOOD) * 20,
        "half-closed": HEAD + b"Content-Length: 50\r\n\r\n{",
    }[kind]
    stop, rounds, expected = threading.Event(), [], expected_code(exported)

    def attack():
        while not stop.is_set():
            with Client(patient) as client:
                send_until_closed(client, [raw])
                if kind == "half-closed":
                    client.socket.shutdown(socket.SHUT_WR)
                with contextlib.suppress(EOFError, ConnectionError):
                    rounds.append(client.answer().status)

    threads = [threading.Thread(target=attack) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        # Good requests go on until every attacker has had time for some rounds.
        deadline = time.monotonic() + PATIENCE
        answered = 0
        while answered < 20 or (len(rounds) < 8 and kind != "half-closed"):
            assert code_of(exchange(patient, raw_request("POST", PREDICT, GOOD))) == expected
            answered += 1
            assert time.monotonic() < deadline
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert set(rounds) <= {200, 400, 413}


def test_no_more_connections_than_allowed_and_the_next_one_waits_its_turn(start):
    with start(request_timeout=TIMEOUT, max_connections=2) as port:
        started = time.monotonic()
        with Client(port), Client(port):
            # Both are silent, until they are closed in favour of those that wait.
            good_answer(port)
        assert time.monotonic() - started > TIMEOUT / 2
