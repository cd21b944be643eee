import asyncio
import base64
import contextlib
import gzip
import json
import threading

import numpy as np
import pytest
import tensorflow as tf

from serving.server.batcher import Batcher
from serving.server.model_store import ModelStore
from serving.server.rest import RestApplication
from serving.server.service import Service
from serving.server.settings import Settings


class Answer:
    def __init__(self, messages):
        start, *bodies = messages
        self.status = start["status"]
        self.headers = {name.decode(): value.decode() for name, value in start["headers"]}
        self.body = b"".join(message["body"] for message in bodies)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        (error,) = self.json.values()
        assert list(self.json) == ["error"]
        return error


async def ask(app, method, path, body=b"", headers=None, chunk=None):
    """One request through the ASGI application, without sockets."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    chunks = [raw] if chunk is None else [raw[at : at + chunk] for at in range(0, len(raw), chunk)]
    messages = [
        {"type": "http.request", "body": part, "more_body": number < len(chunks) - 1}
        for number, part in enumerate(chunks)
    ]
    sent = []

    async def receive():
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    pairs = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": pairs}
    await app(scope, receive, send)
    return Answer(sent)


@pytest.fixture(scope="module")
def store(exported):
    store = ModelStore(Settings(model_base=exported.base))
    store.poll()
    yield store
    store.stop()


@contextlib.contextmanager
def application(store, **settings):
    """Inside a running loop: an application over the loaded model."""
    service = Service(Settings(model_base="unused", **settings), store)
    try:
        yield RestApplication(service)
    finally:
        service.close()


def run(store, *requests, **settings):
    """The answers to requests, each the arguments of `ask`."""

    async def main():
        with application(store, **settings) as app:
            return [await ask(app, *request[:3], **(request[3] if len(request) > 3 else {})) for request in requests]

    answers = asyncio.run(asyncio.wait_for(main(), 60))
    return answers[0] if len(answers) == 1 else answers


PREDICT = "/v1/models/cmimh:predict"


def predict(signature, **content):
    return ("POST", PREDICT, {"signature_name": signature, **content})


def b64(value):
    return {"b64": base64.b64encode(value).decode()}


def test_rows_and_columns_give_the_codes_of_the_model(exported, store):
    rows = exported.image_rows(3)
    expected = [b64(code.tobytes()) for code in exported.model.hash_images(rows)]
    listed = rows.tolist()
    answers = run(
        store,
        predict("hash_image", instances=listed),
        predict("hash_image", instances=[{"image": row} for row in listed]),
        predict("hash_image_float_bytes", instances=[b64(row.tobytes()) for row in rows]),
    )
    for answer in answers:
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert [row["code_bytes"] for row in answer.json["predictions"]] == expected
    answers = run(
        store,
        predict("hash_image", inputs=listed),
        predict("hash_image", inputs={"image": listed}),
        predict("hash_image_float_bytes", inputs={"image_float_bytes": [b64(row.tobytes()) for row in rows]}),
    )
    for answer in answers:
        outputs = answer.json["outputs"]
        assert outputs["code_bytes"] == expected
        assert np.shape(outputs["bits"]) == np.shape(outputs["probs"]) == (3, 16)


def test_captions_pictures_and_examples(exported, store):
    picture = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    example = tf.train.Example()
    example.features.feature["caption"].bytes_list.value.append(b"a red cat")
    caption, picture_answer, example_answer = run(
        store,
        predict("hash_caption", instances=["a red cat"]),
        predict("hash_image_bytes", instances=[b64(tf.io.encode_png(picture).numpy())]),
        ("POST", PREDICT, {"instances": [b64(example.SerializeToString())]}),
    )
    expected = [b64(exported.caption_codes(["a red cat"])[0].tobytes())]
    assert [row["code_bytes"] for row in caption.json["predictions"]] == expected
    assert [row["code_bytes"] for row in example_answer.json["predictions"]] == expected
    expected = [b64(exported.picture_codes([picture])[0].tobytes())]
    assert [row["code_bytes"] for row in picture_answer.json["predictions"]] == expected


def test_addresses_with_version_and_label_in_any_case(exported, store):
    body = {"signature_name": "hash_caption", "instances": ["dog"]}
    answers = run(
        store,
        ("POST", "/v1/models/cmimh/versions/1:predict", body),
        ("POST", "/V1/Models/cmimh/Versions/0001:Predict", body),
        ("POST", "/v1/models/%63mimh:predict", body),
    )
    assert [answer.status for answer in answers] == [200, 200, 200]


def test_status_metadata_ready_and_metrics(exported, store):
    status, one, metadata, ready, metrics = run(
        store,
        ("GET", "/v1/models/cmimh", b""),
        ("GET", "/v1/models/cmimh/versions/1", b""),
        ("GET", "/v1/models/cmimh/metadata", b""),
        ("GET", "/readyz", b""),
        ("GET", "/monitoring/prometheus/metrics", b""),
    )
    assert status.json == one.json == {
        "model_version_status": [
            {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
        ]
    }  # fmt: skip
    assert metadata.json["model_spec"] == {"name": "cmimh", "signature_name": "", "version": "1"}
    signature = metadata.json["metadata"]["signature_def"]["signature_def"]["hash_image"]
    assert signature["inputs"]["image"]["dtype"] == "DT_FLOAT"
    sizes = [dim["size"] for dim in signature["inputs"]["image"]["tensor_shape"]["dim"]]
    assert sizes == ["-1", "572"]
    assert ready.status == 200
    assert metrics.headers["content-type"].startswith("text/plain")
    text = metrics.body.decode()
    assert ':tensorflow:serving:request_count{entrypoint="REST",model_name="cmimh",status="OK"} 3.0' in text


WRONG = [
    ({"instances": [[1.0]]}, 400, 'Serving signature name: "x" not found in signature def', "x"),
    (b"", 400, "JSON Parse error: The document is empty", None),
    (b"{", 400, "JSON Parse error: ", None),
    (b"[1]", 400, "JSON Value: [1] Is not object", None),
    ({"signature_name": 7}, 400, "'signature_name' key must be a string value.", None),
    ({}, 400, "Missing 'inputs' or 'instances' key", "hash_image"),
    ({"instances": [], "inputs": []}, 400, "expecting only one of 'inputs' or 'instances'", "hash_image"),
    ({"instances": 3}, 400, "Excepting 'instances' to be an list/array", "hash_image"),
    ({"instances": []}, 400, "No values in 'instances' array", "hash_image"),
    ({"instances": [["a"] * 572]}, 400, 'JSON Value: "a" Type: String is not of expected type: float', "hash_image"),
    ({"instances": [[None] * 572]}, 400, "Type: Null is not of expected type: float", "hash_image"),
    ({"instances": [[True] * 572]}, 400, "Type: True is not of expected type: float", "hash_image"),
    ({"instances": [[1e39] * 572]}, 400, "to float without loss of precision", "hash_image"),
    ({"instances": [[2**24] * 572]}, 400, "16777216 to float without loss of precision", "hash_image"),
    ({"instances": [[1.0] * 3]}, 400, "`image` must have shape [rows, 572]. Received: [1, 3].", "hash_image"),
    ({"instances": [1.0]}, 400, "`image` must have shape [rows, 572]. Received: [1].", "hash_image"),
    ({"instances": [[1.0, 2.0], [1.0]]}, 400, "Encountered list at unexpected size: 1", "hash_image"),
    ({"instances": [[1.0], 1.0]}, 400, "found at incorrect level", "hash_image"),
    ({"instances": [[[1.0]]]}, 400, "Encountered list at unexpected level", "hash_image"),
    ({"instances": [{"image": [1.0]}, [1.0]]}, 400, "Expecting object but got list at item 1", "hash_image"),
    ({"instances": [[1.0], {"image": [1.0]}]}, 400, "Expecting value/list but got object at item 1", "hash_image"),
    ({"instances": [{"text": [1.0]}]}, 400, "keys must be equal to: image", "hash_image"),
    ({"inputs": {"text": [1.0]}}, 400, "Missing named input: image in 'inputs' object.", "hash_image"),
    ({"instances": [{"b64": "AAA%"}]}, 400, "Unable to base64 decode", "hash_caption"),
    ({"instances": [{"b64": 1}]}, 400, "keys must be equal to: caption", "hash_caption"),
    ({"instances": [5]}, 400, "JSON Value: 5 Type: Number is not of expected type: string", "hash_caption"),
    ({"inputs": "text"}, 400, "`caption` must have shape [rows]. Received: [].", "hash_caption"),
    ({"instances": [{"b64": "AAAA"}]}, 400, "Unknown image file format", "hash_image_bytes"),
    ({"instances": [{"b64": "AAAA"}]}, 400, "2288 bytes a row. Received: 3 bytes.", "hash_image_float_bytes"),
    ({"instances": [{"b64": "//8="}]}, 400, "Could not parse example input", None),
]


@pytest.mark.parametrize(("body", "status", "message", "signature"), WRONG)
def test_what_is_wrong_is_said(store, body, status, message, signature):
    if signature is not None:
        body = {"signature_name": signature, **body}
    answer = run(store, ("POST", PREDICT, body))
    assert answer.status == status
    assert message in answer.error


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", "/v1/models/other:predict", 404, "Servable not found for request: Latest(other)"),
        ("POST", "/v1/models/cmimh/versions/9:predict", 404, "Servable not found for request: Specific(cmimh, 9)"),
        ("POST", "/v1/models/cmimh/labels/no:predict", 400, "Unrecognized servable version label: no"),
        ("POST", f"/v1/models/cmimh/versions/{2**63}:predict", 400, "Failed to convert version"),
        ("POST", "/v1/models/cmimh/versions/-1:predict", 400, "Malformed request: POST"),
        ("GET", "/v1/models/other", 404, "Could not find any versions of model other"),
        ("GET", "/v1/models/cmimh/versions/9", 404, "Could not find version 9 of model cmimh"),
        ("GET", "/v1/models/cmimh/labels/no", 400, "Unrecognized servable version label: no"),
        ("GET", "/v1/models/other/metadata", 404, "Servable not found for request: Latest(other)"),
        ("GET", "/v1/models", 400, "Malformed request: GET /v1/models"),
        ("GET", "/v1/models/cmimh:predict", 400, "Malformed request"),
        ("PUT", "/v1/models/cmimh:predict", 400, "Malformed request"),
        ("POST", "/v1/models/cmimh:classify", 400, "Method classify is not supported"),
        ("GET", "/", 404, "There is nothing at /"),
    ],
)
def test_addresses_that_lead_nowhere(store, method, path, status, message):
    answer = run(store, (method, path, {"signature_name": "hash_caption", "instances": ["a"]}))
    assert answer.status == status
    assert message in answer.error


def test_padding_may_be_left_out(store):
    padded, bare = run(
        store,
        predict("hash_caption", instances=[{"b64": "YSBjYXQ="}]),
        predict("hash_caption", instances=[{"b64": "YSBjYXQ"}]),
    )
    assert padded.json == bare.json


def test_gzip(store):
    body = json.dumps({"signature_name": "hash_caption", "instances": ["a cat"]}).encode()
    packed = gzip.compress(body)
    header = {"headers": {"Content-Encoding": "gzip"}}
    plain, good, junk, short, other, bomb = run(
        store,
        ("POST", PREDICT, body),
        ("POST", PREDICT, packed, header),
        ("POST", PREDICT, b"junk", header),
        ("POST", PREDICT, packed[:-9], header),
        ("POST", PREDICT, body, {"headers": {"Content-Encoding": "br"}}),
        ("POST", PREDICT, gzip.compress(bytes(2_000_000)), header),
        max_body_bytes=1_000_000,
    )
    assert good.json == plain.json
    assert (junk.status, short.status, other.status, bomb.status) == (400, 400, 400, 413)
    assert "must be gzip" in junk.error
    assert "ends too early" in short.error
    assert "at most 1000000 bytes" in bomb.error


def test_limits_of_body_and_rows(store):
    body = json.dumps({"signature_name": "hash_caption", "instances": ["a cat"] * 9}).encode()
    fits, in_parts, too_long, announced, absurd = run(
        store,
        ("POST", PREDICT, body),
        ("POST", PREDICT, body, {"chunk": 7}),
        ("POST", PREDICT, body + b" " * 200, {"chunk": 50}),
        ("POST", PREDICT, b"", {"headers": {"Content-Length": "999"}}),
        ("POST", PREDICT, b"", {"headers": {"Content-Length": "9" * 5000}}),
        max_body_bytes=len(body),
    )
    assert fits.json == in_parts.json
    assert [answer.status for answer in (too_long, announced, absurd)] == [413, 413, 413]
    answer = run(store, ("POST", PREDICT, body), max_rows=8)
    assert (answer.status, answer.error) == (400, "A request must have 1 to 8 rows. Received: 9.")


def test_token_and_request_id(store):
    open_ready, without, wrong, right = run(
        store,
        ("GET", "/readyz", b""),
        ("GET", "/v1/models/cmimh", b"", {"headers": {"X-Request-Id": "mine-7"}}),
        ("GET", "/v1/models/cmimh", b"", {"headers": {"Authorization": "Bearer secreT"}}),
        ("GET", "/v1/models/cmimh", b"", {"headers": {"Authorization": "Bearer secret", "X-Request-Id": "a\nb"}}),
        token="secret",
    )
    assert [answer.status for answer in (open_ready, without, wrong, right)] == [200, 401, 401, 200]
    assert without.headers["www-authenticate"] == "Bearer"
    assert without.headers["x-request-id"] == "mine-7"
    assert "\n" not in right.headers["x-request-id"]
    assert right.headers["x-request-id"] != open_ready.headers["x-request-id"]


def test_errors_are_logged_with_the_request_id(store, caplog):
    with caplog.at_level("INFO"):
        run(store, ("POST", PREDICT, b"{", {"headers": {"X-Request-Id": "mine-8"}}))
    (record,) = [record for record in caplog.records if getattr(record, "request_id", None) == "mine-8"]
    assert record.status == "INVALID_ARGUMENT"
    assert "JSON Parse error" in record.error


def test_exhausted_unavailable_and_deadline(store, monkeypatch):
    gate = threading.Event()
    original = Batcher._run_batch

    def slow(self, runner, batch):
        assert gate.wait(30)
        original(self, runner, batch)

    monkeypatch.setattr(Batcher, "_run_batch", slow)

    async def main():
        with application(store, max_enqueued_rows=1, request_timeout=0.5) as app:
            body = {"signature_name": "hash_caption", "instances": ["a"]}
            first = asyncio.create_task(ask(app, "POST", PREDICT, body))
            await asyncio.sleep(0.1)
            second = asyncio.create_task(ask(app, "POST", PREDICT, body))
            await asyncio.sleep(0.05)
            third = await ask(app, "POST", PREDICT, body)
            answers = [await first, await second, third]
            gate.set()
            app._service.stopping = True
            answers.append(await ask(app, "GET", "/readyz"))
            return answers

    first, second, third, ready = asyncio.run(main())
    assert (first.status, second.status) == (504, 504)
    assert "longer than 0.5 seconds" in first.error
    assert third.status == 429
    assert "queue" in third.error
    assert third.headers["retry-after"] == "1"
    assert ready.status == 503


def test_a_model_that_is_not_there_yet(tmp_path):
    empty = ModelStore(Settings(model_base=tmp_path))
    empty.poll()
    ready, predicted = run(empty, ("GET", "/readyz", b""), predict("hash_caption", instances=["a"]))
    assert (ready.status, predicted.status) == (503, 404)
