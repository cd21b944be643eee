"""What REST answers do not come from the request alone: token, request id, full queue, time, models that load."""

import asyncio
import threading
import time

import pytest

from serving.server.batcher import Batcher
from serving.server.model_store import ModelStore
from serving.server.servable import Servable
from serving.server.settings import Settings
from tests.serving.http_exchange import (
    PATIENCE,
    PREDICT,
    Client,
    ask,
    exchange,
    predict,
    raw_request,
    run,
    running_service,
)


def test_token_and_request_id(store):
    open_ready, without, wrong, right = run(
        store,
        ("GET", "/readyz", b""),
        ("GET", "/v1/models/cmimh", b"", {"X-Request-Id": "mine-7"}),
        ("GET", "/v1/models/cmimh", b"", {"Authorization": "Bearer secreT"}),
        ("GET", "/v1/models/cmimh", b"", {"Authorization": "Bearer secret", "X-Request-Id": "a\tb"}),
        token="secret",
    )
    assert [answer.status for answer in (open_ready, without, wrong, right)] == [200, 401, 401, 200]
    assert without.headers["www-authenticate"] == "Bearer"
    assert without.headers["x-request-id"] == "mine-7"
    assert "\t" not in right.headers["x-request-id"]
    assert right.headers["x-request-id"] != open_ready.headers["x-request-id"]


def test_errors_are_logged_with_the_request_id(store, caplog):
    with caplog.at_level("INFO"):
        run(store, ("POST", PREDICT, b"{", {"X-Request-Id": "mine-8"}))
    (record,) = [record for record in caplog.records if getattr(record, "request_id", None) == "mine-8"]
    assert record.status == "INVALID_ARGUMENT"
    assert "JSON Parse error" in record.error


HEAD = b"POST /v1/models/cmimh:predict HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-9\r\n"


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (HEAD + b"Content-Length: 50\r\n\r\nhalf", 408, "DEADLINE_EXCEEDED"),
        (HEAD + b"Content-Length: 2000\r\n\r\n" + b"a" * 2000, 413, "INVALID_ARGUMENT"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n7d0\r\n" + b"a" * 2000 + b"\r\n0\r\n\r\n", 413, "INVALID_ARGUMENT"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "INVALID_ARGUMENT"),
    ],
)  # fmt: skip
def test_bodies_that_do_not_arrive_are_logged_and_counted_as_other_errors_are(store, caplog, raw, status, code):
    async def main():
        async with running_service(store, request_timeout=1.0, max_body_bytes=1000) as service:
            return await asyncio.to_thread(exchange, service.port, raw), service.metrics.page().decode()

    with caplog.at_level("INFO"):
        answer, page = asyncio.run(main())
    assert (answer.status, answer.headers["x-request-id"]) == (status, "mine-9")
    (record,) = [record for record in caplog.records if getattr(record, "request_id", None) == "mine-9"]
    assert (record.status, record.error) == (code, answer.error)
    assert record.request == "POST /v1/models/cmimh:predict"
    assert page.count(f'request_count{{entrypoint="REST",model_name="cmimh",status="{code}"}} 1.0') == 1


async def until(condition):
    """Waits until the condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.fixture
def gate(monkeypatch):
    """An event; no batch is computed before it is set."""
    gate = threading.Event()
    original = Batcher._run_batch

    def slow(self, runner, batch):
        assert gate.wait(PATIENCE)
        original(self, runner, batch)

    monkeypatch.setattr(Batcher, "_run_batch", slow)
    return gate


BODY = {"signature_name": "hash_caption", "instances": ["a"]}


def test_a_full_queue_and_a_server_that_stops(store, gate):
    async def main():
        settings = {"num_batch_threads": 1, "max_enqueued_rows": 1, "request_timeout": PATIENCE}
        async with running_service(store, **settings) as service:
            first = asyncio.create_task(ask(service, "POST", PREDICT, BODY))
            await until(lambda: service.service._batcher._running_rows == 1)
            second = asyncio.create_task(ask(service, "POST", PREDICT, BODY))
            await until(lambda: service.service._batcher._enqueued_rows == 1)
            third = await ask(service, "POST", PREDICT, BODY)
            gate.set()
            answers = [await first, await second, third]
            service.stopping = True
            return [*answers, await ask(service, "GET", "/readyz")]

    first, second, third, ready = asyncio.run(main())
    assert (first.status, second.status, third.status, ready.status) == (200, 200, 429, 503)
    assert "queue" in third.error
    assert third.headers["retry-after"] == "1"


def test_requests_that_run_or_wait_for_too_long(store, gate):
    async def main():
        async with running_service(store, num_batch_threads=1, request_timeout=1.0) as service:
            answers = await asyncio.gather(*(ask(service, "POST", PREDICT, BODY) for _ in range(2)))
            gate.set()
            return answers

    for answer in asyncio.run(main()):
        assert answer.status == 504
        assert "longer than 1 seconds" in answer.error


def test_a_model_that_is_not_there_yet(tmp_path):
    empty = ModelStore(Settings(model_base=tmp_path))
    empty.poll()
    ready, predicted = run(empty, ("GET", "/readyz", b""), predict("hash_caption", instances=["a"]))
    assert (ready.status, predicted.status) == (503, 404)


def test_a_model_that_is_being_loaded_is_unavailable(exported):
    loading, go_on = threading.Event(), threading.Event()

    def load(name, version, folder):
        loading.set()
        assert go_on.wait(PATIENCE)
        return Servable(name, version, folder)

    slow = ModelStore(Settings(model_base=exported.base), load)
    poller = threading.Thread(target=slow.poll)
    poller.start()
    assert loading.wait(PATIENCE)
    try:
        question = predict("hash_caption", instances=["a"])
        of_version = ("POST", "/v1/models/cmimh/versions/1:predict", question[2])
        status, *answers = run(slow, ("GET", "/v1/models/cmimh", b""), question, of_version)
        assert status.json["model_version_status"][0]["state"] == "LOADING"
        for answer in answers:
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert answer.error == "Model cmimh is being loaded."
    finally:
        go_on.set()
        poller.join(2 * PATIENCE)
    assert run(slow, question).status == 200
    slow.stop()


def test_a_request_whose_client_hangs_up_is_not_computed(store, caplog):
    async def main():
        async with running_service(store, batch_timeout=2 * PATIENCE) as service:
            body = {"signature_name": "hash_caption", "instances": ["a"]}
            with Client(service.port) as client:
                client.send(raw_request("POST", PREDICT, body, {"X-Request-Id": "gone"}))
                await until(lambda: service.service._batcher._enqueued_rows == 1)
            await until(find)
            assert b"processed_batch_size_count 0.0" in service.metrics.page()

    def find():
        return [record for record in caplog.records if getattr(record, "request_id", None) == "gone"]

    with caplog.at_level("INFO"):
        asyncio.run(main())
    (record,) = find()
    assert record.status == "CANCELLED"
