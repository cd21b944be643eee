"""Clients that break HTTP do not stop a good one. `tests/serving/test_hostile_clients.py` has more of them."""

import contextlib
import json
import socket
import zlib

import httpx
import pytest

from tests.search_service.conftest import run_search
from tests.search_service.fake_index import FakeIndex
from tests.serving.http_exchange import Client, raw_request

MAX_BODY_BYTES = 1 << 20
HEAD = b"POST /v1/search HTTP/1.1\r\nHost: x\r\n"
GOOD = raw_request("POST", "/v1/search", {"text": "red"})


@pytest.fixture(scope="module")
def searching(pictures, tmp_path_factory):
    folder = tmp_path_factory.mktemp("index")
    with run_search(lambda *_: FakeIndex(pictures), folder, max_body_bytes=MAX_BODY_BYTES) as running:
        yield running


def slow_loris(client):
    client.send(HEAD)


def half_of_a_body(client):
    client.send(HEAD + b"Content-Length: 1000\r\n\r\n{")


def half_closed(client):
    client.send(HEAD + b"Content-Length: 50\r\n\r\n{")
    client.socket.shutdown(socket.SHUT_WR)


def pipelined(client):
    client.send(GOOD * 20)
    assert [client.answer().status for _ in range(20)] == [200] * 20


def oversized(client):
    # The service may close the connection before all of it is sent, after its answer.
    with contextlib.suppress(ConnectionError):
        client.send(raw_request("POST", "/v1/search", b"a" * (3 * MAX_BODY_BYTES)))
    assert client.answer().status == 413


def gzip_bomb(client):
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range(4)) + packer.flush()
    client.send(raw_request("POST", "/v1/search", bomb, {"Content-Encoding": "gzip"}))
    answer = client.answer()
    assert answer.status == 413
    assert "once unpacked" in json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize("hostile", [slow_loris, half_of_a_body, half_closed, pipelined, oversized, gzip_bomb])
def test_a_good_client_is_answered_meanwhile(searching, hostile):
    port = httpx.URL(searching.address).port
    with contextlib.ExitStack() as stack:
        for _ in range(30 if hostile in (slow_loris, half_of_a_body, half_closed) else 3):
            hostile(stack.enter_context(Client(port)))
        assert searching.search(text="red").status_code == 200
