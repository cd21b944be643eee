"""Random requests never make the service fail: every answer is a 2xx or a 4xx, and a good request is still answered."""

import base64
import json
import os
import random

import httpx
import pytest

from tests.search_service.conftest import TOKEN
from tests.search_service.fake_index import draw
from tests.serving.fuzzing import resident_megabytes
from tests.serving.http_exchange import PATIENCE

NUM_REQUESTS = int(os.environ.get("FUZZ_REQUESTS", "3000"))
_PICTURE = base64.b64encode(draw("red", "bar")).decode()
_VALUES = [
    None, True, 0, -1, 1, 7, 2**31, 2**63, 2**64, 1e308, -0.0, "", " ", "red circle", "a" * 300, "\u0000", "\u202e",
    "ü😀", "../../etc/passwd", "'; drop table items; --", "%00", "id", "image", [], {}, [[]], [None], {"b64": "AAAA"},
    {"b64": 5}, {"b64": _PICTURE[:400]}, {"b64": _PICTURE}, "deadbeef", "dead", "images", "texts", "both", "none",
    "asymmetric", "features", "label = 'red'", "label = ", "year >= 1e999",
]  # fmt: skip
_FIELDS = [
    "text",
    "image",
    "image_url",
    "id",
    "code",
    "side",
    "find",
    "top",
    "radius",
    "where",
    "rerank",
    "queries",
    "items",
    "x",
]


def some_object(rng: random.Random, depth: int = 0) -> dict:
    names = rng.sample(_FIELDS, rng.randint(0, 5))
    made = {name: rng.choice(_VALUES) for name in names}
    if depth < 2 and rng.random() < 0.5:
        made[rng.choice(["queries", "items"])] = [some_object(rng, depth + 1) for _ in range(rng.randint(0, 4))]
    return made


def good_search(rng: random.Random) -> dict:
    return {
        "queries": [{"text": rng.choice(["red", "blue ring"])}, {"id": str(rng.randint(1, 40))}],
        "top": rng.randint(1, 9),
    }


def some_request(rng: random.Random) -> tuple[str, str, bytes, dict]:
    kind = rng.random()
    path = rng.choice(["/v1/search", "/v1/search", "/v1/search", "/v1/items"])
    headers = {"authorization": f"Bearer {TOKEN}"} if rng.random() < 0.5 else {}
    if kind < 0.4:
        document = some_object(rng)
        document.pop("items", None) if path == "/v1/search" else document.pop("queries", None)
        return "POST", path, json.dumps(document).encode(), headers
    if kind < 0.55:
        # A good request, half of the time with one value replaced.
        document = good_search(rng)
        if rng.random() < 0.5:
            target = rng.choice([document, *document["queries"]])
            target[rng.choice(_FIELDS)] = rng.choice(_VALUES)
        return "POST", "/v1/search", json.dumps(document).encode(), headers
    if kind < 0.7:
        body = bytearray(json.dumps(good_search(rng)).encode())
        for _ in range(rng.randint(1, 6)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        return "POST", path, bytes(body[: rng.randint(0, len(body))]), headers
    if kind < 0.8:
        parts = b"".join(
            f'--b\r\nContent-Disposition: form-data; name="{rng.choice(_FIELDS)}"\r\n\r\n'.encode()
            + rng.choice([b"red", b"", rng.randbytes(20), draw("red", "bar")])
            + b"\r\n"
            for _ in range(rng.randint(0, 5))
        )
        body = bytearray(parts + b"--b--\r\n")
        if rng.random() < 0.5:
            body[rng.randrange(len(body))] = rng.randrange(256)
        return "POST", "/v1/search", bytes(body), {**headers, "content-type": "multipart/form-data; boundary=b"}
    characters = "abc/%.?&=+#ü0129" + chr(0x202E)
    text = "".join(rng.choice(characters) for _ in range(rng.randint(0, 40)))
    encoded = text.encode().replace(b"#", b"%23").replace("ü".encode(), rng.choice([b"%C3%BC", b"%FF", b"%00"]))
    tail = encoded.decode("ascii", "ignore")
    method = rng.choice(["GET", "GET", "GET", "DELETE", "POST", "PUT", "PATCH", "OPTIONS"])
    prefix = rng.choice(
        [
            "/v1/items/",
            "/v1/items/1/picture?size=",
            "/v1/search?text=",
            "/v1/search?",
            "/page/",
            "/",
            "/v1/items?count=",
        ]
    )
    return method, prefix + tail, b"", headers


@pytest.mark.parametrize("seed", [0])
def test_no_request_makes_the_service_fail(service, seed):
    rng = random.Random(seed)
    statuses: dict[int, int] = {}
    with httpx.Client(base_url=service.address, timeout=PATIENCE, trust_env=False) as client:
        for number in range(NUM_REQUESTS):
            method, path, body, headers = some_request(rng)
            response = client.request(method, path, content=body, headers=headers)
            statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
            assert response.status_code < 500, (method, path, body, response.text)
            if response.status_code >= 400:
                assert set(response.json()) == {"error", "request_id"}, (method, path, body, response.text)
            if number % 500 == 0:
                assert client.post("/v1/search", json={"text": "red"}).status_code == 200
                print(f"{number} requests, {resident_megabytes()} MB", flush=True)
    assert statuses[200] > 100
    assert statuses[400] > 100
    print(dict(sorted(statuses.items())))
