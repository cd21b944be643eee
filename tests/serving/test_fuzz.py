"""Ten thousand broken requests: every one gets a 4xx, and the next good one its codes."""

import asyncio
import base64
import gzip
import json
import socket
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving.server.service import Service
from serving.server.settings import Settings
from tests.serving.http_exchange import raw_request
from tests.serving.rest_exchange import PREDICT, connect

REQUESTS_PER_EXAMPLE, EXAMPLES = 10, 1000
GOOD = {"signature_name": "hash_caption", "instances": ["a red cat"]}

# Vectors of the right width, and captions, do not come out of these by chance.
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=8),
    st.builds(lambda text: {"b64": text}, st.one_of(st.text(max_size=8), st.integers())),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
documents = st.fixed_dictionaries(
    {"signature_name": st.sampled_from(["hash_image", "hash_image_bytes", "hash_text_float_bytes", "hash_x", "", 0])},
    optional={
        "instances": values, "inputs": values, "image": values,
    },
)  # fmt: skip
as_json = documents.map(lambda document: json.dumps(document).encode())
damaged = st.builds(
    lambda body, at, byte: body[: at % len(body)] + bytes([byte]) + body[at % len(body) + 2 :],
    as_json, st.integers(0, 1000), st.integers(0, 255),
)  # fmt: skip
nested = st.builds(
    lambda depth, opening: b'{"signature_name": "hash_image", "instances": ' + opening * depth,
    st.sampled_from([10, 1000, 100_000]), st.sampled_from([b"[", b'{"a":', b"[[", b'["']),
)  # fmt: skip
closed = st.integers(3, 2000).map(
    lambda depth: b'{"signature_name": "hash_image", "instances": ' + b"[" * depth + b"]" * depth + b"}"
)
bodies = st.one_of(as_json, damaged, nested, closed, st.binary(max_size=64), st.just(b"null"))
encodings = st.sampled_from([None, None, "gzip", "GZIP", "deflate", "gzip, gzip", "\x7f"])
lengths = st.sampled_from([None, None, None, "-1", "0", "99999999999", "9" * 5000, "1e9", "abc"])
paths = st.one_of(
    st.just(PREDICT),
    st.just(PREDICT),
    st.sampled_from([
        "/v1/models/cmimh/versions/999:predict", "/v1/models/cmimh/versions/-1:predict",
        "/v1/models/cmimh/versions/99999999999999999999:predict", "/v1/models/cmimh/labels/%ff:predict",
        "/v1/models/%00:predict", "/v1/models//:predict", "/v1/models/cmimh:explain", "/v1/models/cmimh:classify", "*",
    ]),
    st.text(max_size=20).map(lambda text: "/v1/" + text),
)  # fmt: skip
methods = st.sampled_from(["POST"] * 6 + ["PUT", "DELETE", "PATCH", "POSTPOST"])
requests = st.tuples(methods, paths, bodies, encodings, lengths, st.booleans())


@pytest.fixture(scope="module")
def fuzzed(store):
    """A function that sends bytes over a connection of their own, and returns the first answer."""
    loop = asyncio.new_event_loop()
    service = loop.run_until_complete(_make_service(store))

    async def ask(raw):
        connection, wire = connect(service)
        connection.data_received(raw)
        # Half a request, where a broken one happens to be that, waits for the rest until its time is over.
        connection.look_at_clock(time.perf_counter() + 60)
        answer = await wire.answer()
        wire.close()
        return answer

    yield lambda raw: loop.run_until_complete(asyncio.wait_for(ask(raw), 60))
    service.close()
    loop.close()


async def _make_service(store):
    return Service(Settings(model_base=Path("unused"), max_body_bytes=1 << 18, request_timeout=30.0), store)


def test_only_4xx_and_the_next_good_one_is_answered(exported, fuzzed):
    counts = {"requests": 0}
    expected = exported.caption_codes(["a red cat"])[0].tobytes()

    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(requests, min_size=REQUESTS_PER_EXAMPLE, max_size=REQUESTS_PER_EXAMPLE))
    def broken(batch):
        for method, path, body, encoding, length, packed in batch:
            if encoding is not None and packed:
                # Cut off, or whole: with a wrong body inside.
                body = gzip.compress(body)[: len(body)] if len(body) % 2 else gzip.compress(body)
            lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {length or len(body)}"]
            if encoding is not None:
                lines.append(f"Content-Encoding: {encoding}")
            raw = "\r\n".join(lines).encode("utf-8", "surrogatepass") + b"\r\n\r\n" + body
            answer = fuzzed(raw)
            counts["requests"] += 1
            assert 400 <= answer.status < 500, (answer.status, raw[:300], answer.body)
            assert answer.error
        if counts["requests"] % 500 == 0:
            check_good()

    def check_good():
        answer = fuzzed(raw_request("POST", PREDICT, GOOD))
        assert answer.status == 200
        assert base64.b64decode(answer.json["predictions"][0]["code_bytes"]["b64"]) == expected

    broken()
    check_good()
    assert counts["requests"] >= 10_000


def exchange(port, raw):
    """The first bytes of the answer; none if the server has hung up while it was still being sent to."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(raw)
            return connection.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return b""


def test_broken_http_over_real_sockets(server):
    good = json.dumps(GOOD).encode()
    head = b"POST /v1/models/cmimh:predict HTTP/1.1\r\nHost: x\r\n"
    broken = [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /v1/models/cmimh:predict HTTP/9.9\r\n\r\n",
        head + b"Content-Length: -5\r\n\r\n" + good,
        head + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n" + good,
        head + b"Content-Length: 99999999999\r\n\r\n" + good,
        head + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        head + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\njunk",
        head + b"Bad Header\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        head + b"Content-Length: 5\r\n\r\n[[[[[",
    ]
    for _ in range(20):
        for raw in broken:
            answer = exchange(server.rest_port, raw)
            unread = b"99999999999" in raw or len(raw) > 65_536
            assert answer.startswith(b"HTTP/1.1 4") or (unread and not answer), (raw[:80], answer[:200])
        whole = head + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(good) + good
        assert exchange(server.rest_port, whole).startswith(b"HTTP/1.1 200")


def test_half_a_request_over_a_real_socket_is_timed_out(exported, serve):
    head = b"POST /v1/models/cmimh:predict HTTP/1.1\r\nHost: x\r\n"
    limits = Settings(model_base=exported.base, rest_port=0, grpc_port=None, request_timeout=0.3, shutdown_timeout=5)
    with serve(limits) as addresses:
        for raw in (head, head + b"Content-Length: 50\r\n\r\n{"):
            answer = exchange(addresses.rest_port, raw)
            assert answer.startswith(b"HTTP/1.1 408"), answer
