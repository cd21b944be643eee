"""What the REST interface refuses, by status and message."""

import gzip
import json
import tracemalloc
import zlib

import pytest

from serving.errors import ServingError
from serving.web_app import gunzip
from tests.serving.http_exchange import PREDICT, run

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


def test_gzip(store):
    body = json.dumps({"signature_name": "hash_caption", "instances": ["a cat"]}).encode()
    packed = gzip.compress(body)
    header = {"Content-Encoding": "gzip"}
    plain, good, junk, short, other, bomb = run(
        store,
        ("POST", PREDICT, body),
        ("POST", PREDICT, packed, header),
        ("POST", PREDICT, b"junk", header),
        ("POST", PREDICT, packed[:-9], header),
        ("POST", PREDICT, body, {"Content-Encoding": "br"}),
        ("POST", PREDICT, gzip.compress(bytes(2_000_000)), header),
        max_body_bytes=1_000_000,
    )
    assert good.json == plain.json
    assert (junk.status, short.status, other.status, bomb.status) == (400, 400, 400, 413)
    assert "must be gzip" in junk.error
    assert "ends too early" in short.error
    assert "at most 1000000 bytes. Received: more, once unpacked." in bomb.error


def test_a_bomb_is_not_unpacked_beyond_the_limit():
    """64 MB of zeros in 64 KB: unpacked as a whole they would show in the peak of the memory."""
    packer = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(bytes(1 << 24)) for _ in range(4)) + packer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(ServingError) as caught:
            gunzip(bomb, 1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.http_status == 413
    assert peak < 1 << 23


@pytest.mark.parametrize("depth", [50, 1000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting(store, depth, opening, closing):
    body = f'{{"signature_name": "hash_image", "instances": {opening * depth}1{closing * depth}}}'.encode()
    answer = run(store, ("POST", PREDICT, body))
    assert answer.status == 400
    assert len(answer.error) < 500


def test_limits_of_body_and_rows(store):
    body = json.dumps({"signature_name": "hash_caption", "instances": ["a cat"] * 9}).encode()
    fits, too_long = run(
        store, ("POST", PREDICT, body), ("POST", PREDICT, body + b" "), max_body_bytes=len(body)
    )  # fmt: skip
    assert (fits.status, too_long.status) == (200, 413)
    assert too_long.error == f"The body must have at most {len(body)} bytes. Received: more."
    answer = run(store, ("POST", PREDICT, body), max_rows=8)
    assert (answer.status, answer.error) == (400, "A request must have 1 to 8 rows. Received: 9.")
