"""The HTTP interface over real sockets, on an index of coloured shapes."""

import base64
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest

from serving.errors import ServingError
from serving.search.settings import SearchSettings, parse_flags
from tests.search_service.conftest import TOKEN, run_search
from tests.search_service.fake_index import FakeIndex, code_of_text, draw
from tests.serving.http_exchange import PATIENCE

AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


def b64(data: bytes) -> dict:
    return {"b64": base64.b64encode(data).decode()}


def captions(result) -> list[str]:
    return [hit["caption"] for hit in result["hits"]]


def error(response) -> tuple[int, str, str]:
    body = response.json()
    assert set(body) == {"error", "request_id"}
    assert set(body["error"]) == {"code", "message"}
    assert body["request_id"] == response.headers["x-request-id"]
    return response.status_code, body["error"]["code"], body["error"]["message"]


def test_search_by_text(service):
    answer = service.search(text="a red circle", find="images", top=3).json()
    assert answer["index"] == {"name": "shapes", "version": None, "items": 40, "bits": 32, "model": "fake"}
    assert answer["seconds"] >= 0
    (result,) = answer["results"]
    assert result["query"] == {"text": "a red circle", "code": code_of_text("a red circle").hex()}
    assert len(result["hits"]) == 3
    first = result["hits"][0]
    assert first["caption"].startswith("a red circle")
    assert first["picture"] == f"/v1/items/{first['id']}/picture"
    assert (first["side"], first["rank"], first["distance"]) == ("image", 1, 1)
    differing = int(first["code"], 16) ^ int(result["query"]["code"], 16)
    assert differing.bit_count() == first["distance"]
    assert set(first) == {"id", "side", "rank", "distance", "score", "code", "caption", "picture", "metadata"}


def test_search_by_picture_id_and_code_in_one_request(service):
    blue = service.search(text="blue", find="texts", top=1).json()["results"][0]["hits"][0]
    answer = service.search(
        queries=[
            {"image": b64(draw("blue", "ring"))},
            {"id": blue["id"], "side": "text"},
            {"id": int(blue["id"])},
            {"code": code_of_text("yellow bar").hex().upper()},
            {"text": "  purple square "},
        ],
        find="both",
        top=4,
    ).json()
    picture, by_text, by_id, code, text = answer["results"]
    assert all(" blue " in caption for caption in captions(picture))
    assert picture["query"]["image"] == {"bytes": len(draw("blue", "ring"))}
    assert by_text["query"]["side"] == "text"
    assert by_text["query"]["code"] == blue["code"]
    assert blue["id"] not in [hit["id"] for hit in by_id["hits"]]
    assert captions(code)[0].startswith("a yellow bar")
    assert text["query"]["text"] == "purple square"
    assert captions(text)[0].startswith("a purple square")


def test_search_by_form_and_by_address(service):
    options = {"find": "images", "top": "5", "where": "label = 'circle'", "radius": "", "rerank": "none"}
    files = [
        ("image", ("a.png", draw("green", "bar"), "image/png")),
        ("image", ("b.png", draw("teal", "bar"), "image/png")),
    ]
    by_form = service.client.post("/v1/search", data=options, files=files).json()
    assert [captions(result)[0].split(",")[0] for result in by_form["results"]] == ["a green circle", "a teal circle"]
    by_address = service.client.get("/v1/search", params={"text": "green", **options}).json()
    assert by_address["results"][0]["hits"] == by_form["results"][0]["hits"]


def test_options(service):
    within = service.search(text="red circle", find="both", radius=1, top=100).json()["results"][0]["hits"]
    assert {hit["distance"] for hit in within} == {1}
    assert {hit["side"] for hit in within} == {"image", "text"}
    filtered = service.search(text="red", where="label = 'ring' and year >= 2010", top=100).json()["results"][0]["hits"]
    assert filtered
    assert all("ring" in hit["metadata"]["label"] and hit["metadata"]["year"] >= 2010 for hit in filtered)
    plain, ranked = (
        service.search(text="red", top=40, find="images", rerank=how).json() for how in ("none", "asymmetric")
    )
    assert captions(plain["results"][0]) != captions(ranked["results"][0])
    assert service.search(text="red", where="label = 'nothing'").json()["results"][0]["hits"] == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body must be JSON. Received: 0 bytes"),
        (b"{", "The body must be JSON. Received: 1 bytes"),
        (b'{"text": "\xff"}', "The body must be JSON"),
        ([], "The body must be a JSON object. Received: a list of 0."),
        ({}, "A search must have `queries`, or one of text, image, image_url, id, code. Received: none of them."),
        ({"text": "a", "id": "1"}, "Received: text and id."),
        ({"txt": "a"}, "`txt` is not a field of a search. Did you mean text?"),
        ({"queries": []}, "`queries` must be a list of 1 to 64 queries. Received: a list of 0."),
        ({"queries": [{"text": "a"}] * 65}, "`queries` must be a list of 1 to 64 queries. Received: a list of 65."),
        ({"queries": {"text": "a"}}, "`queries` must be a list of 1 to 64 queries. Received: an object."),
        ({"queries": [{"text": "a"}], "text": "b"}, "`text` is not a field of a search with `queries`."),
        ({"queries": [{"text": "a"}, 7]}, "`queries[1]` must be an object. Received: 7."),
        ({"queries": [{"text": "a"}, {}]}, "`queries[1]` must have one of text, image, image_url, id, code."),
        ({"queries": [{"text": "a"}, {"text": ""}]}, "`queries[1].text` must be a string of 1 to 10000 characters."),
        ({"text": " "}, "`text` must be a string of 1 to 10000 characters. Received: ' '."),
        ({"text": "a" * 10_001}, "Received: a string of 10001 characters."),
        ({"text": None}, "`text` must be a string of 1 to 10000 characters. Received: null."),
        ({"text": "a", "side": "image"}, "`side` must only be given with `id`. Received: 'image'."),
        ({"id": "1", "side": "left"}, "`side` must be one of image, text. Received: 'left'."),
        ({"id": ""}, "`id` must be an integer, or a string of 1 to 1000 bytes"),
        ({"id": 1.5}, "`id` must be an integer, or a string of 1 to 1000 bytes"),
        ({"id": "1", "side": ["image"]}, "`side` must be one of image, text. Received: a list of 1."),
        ({"code": "xyz"}, "`code` must be a code in hexadecimal. Received: 'xyz'."),
        ({"queries": [{"code": "aabb"}]}, "`queries[0].code` must have 32 bits. Received: aabb."),
        ({"image": "aGVsbG8="}, '`image` must be an object {"b64": "..."}'),
        ({"image": {"b64": "a"}}, "`image.b64` must be base64."),
        ({"image": {"b64": ""}}, "`image` must be a picture. Received: no bytes."),
        ({"queries": [{"image": b64(b"hello")}]},
         "`queries[0].image` must be a picture (JPEG, PNG, GIF, BMP, WebP, TIFF or AVIF). "
         "Received: 5 bytes that cannot be decoded."),
        ({"image": b64(draw("red", "bar")[:200])}, "`image` must be a picture"),
        ({"text": "a", "top": 0}, "`top` must be an integer from 1 to 1000. Received: 0."),
        ({"text": "a", "top": 1001}, "`top` must be an integer from 1 to 1000. Received: 1001."),
        ({"text": "a", "top": True}, "`top` must be an integer from 1 to 1000. Received: True."),
        ({"text": "a", "top": "5"}, "`top` must be an integer from 1 to 1000. Received: '5'."),
        ({"text": "a", "radius": -1}, "`radius` must be an integer from 0"),
        ({"text": "a", "find": "cats"}, "`find` must be one of images, texts, both. Received: 'cats'."),
        ({"text": "a", "find": {}}, "`find` must be one of images, texts, both. Received: an empty object."),
        ({"text": "a", "rerank": None}, "`rerank` must be one of asymmetric, none, features. Received: null."),
        ({"text": "a", "where": ""}, "`where` must be a filter of 1 to 10000 characters, or null."),
        ({"text": "a", "where": "label ="}, "`where` cannot be parsed"),
    ],
)  # fmt: skip
def test_rejected_searches(service, body, message):
    content = body if isinstance(body, bytes) else json.dumps(body)
    response = service.client.post("/v1/search", content=content)
    status, code, text = error(response)
    assert (status, code) == (400, "INVALID_ARGUMENT")
    assert message in text
    assert len(text) < 500


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "A search must have `queries`"),
        ("text=a&text=b", "`'text'` must be given once."),
        ("text=%ff", "The query string must be UTF-8"),
        ("image=x", "`image` must be sent in the body of a POST request."),
        ("text=a&top=ten", "`top` must be an integer from 1 to 1000. Received: 'ten'."),
        ("text=a&top=1" + "0" * 5000, "`top` must be an integer from 1 to 1000."),
        ("text=a&colour=red", "`colour` is not a field of a search."),
        ("&".join(f"a{number}=1" for number in range(300)), "at most 200 parameters"),
    ],
)
def test_rejected_addresses(service, query, message):
    status, code, text = error(service.client.get(f"/v1/search?{query}"))
    assert (status, code) == (400, "INVALID_ARGUMENT")
    assert message in text


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        ("multipart/form-data", b"x", "Content-Type must name the boundary of the form."),
        ("multipart/form-data; boundary=x", b"hello", "The body must be a form."),
        ("multipart/form-data; boundary=x", b"--x\r\n", "The body must be a form. Received: one that ends too early."),
        ("multipart/form-data; boundary=x",
         b'--x\r\nContent-Disposition: form-data; name="text"\r\n\r\n\xff\r\n--x--\r\n', "part 0 (text)` must be"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", "`queries` must be a list of 1 to 64 queries."),
        ("multipart/form-data; boundary=x",
         b"".join(b'--x\r\nContent-Disposition: form-data; name="t"\r\n\r\n\r\n' for _ in range(201)) + b"--x--\r\n",
         "at most 200 parts"),
    ],
)  # fmt: skip
def test_rejected_forms(service, content_type, body, message):
    response = service.client.post("/v1/search", content=body, headers={"content-type": content_type})
    assert response.status_code == 400
    assert message in error(response)[2]


def test_an_id_that_is_not_there(service):
    answered = error(service.search(queries=[{"text": "red"}, {"id": "no such"}]))
    assert answered == (404, "NOT_FOUND", "`queries[1].id` must be the id of an item. Received: 'no such'.")
    assert error(service.client.get("/v1/items/no%20such"))[:2] == (404, "NOT_FOUND")


def test_items_and_indexes(service):
    item = service.client.get("/v1/items/1").json()
    assert item["caption"] == "a red circle, number 1"
    assert set(item["codes"]) == {"image", "text"}
    sample = service.client.get("/v1/items?count=8").json()["items"]
    assert len(sample) == 8
    assert len({item["id"] for item in sample}) == 8
    assert error(service.client.get("/v1/items?count=101"))[0] == 400
    described = service.client.get("/v1/indexes").json()
    (index,) = described["indexes"]
    assert (index["items"], index["bits"]) == (40, 32)
    assert [column["name"] for column in index["columns"]] == ["label", "year", "source"]
    assert described["limits"]["max_top"] == 1000
    assert described["serves_pictures"] is True


def test_items_are_added_and_removed_with_the_token(service):
    id = "a/new one?#%&+ü"
    item = {"id": id, "text": "a pink circle", "image": b64(draw("red", "bar")), "metadata": {"year": 1999}}
    added = service.client.post("/v1/items", json={"items": [item]}, headers=AUTHORIZED).json()
    assert (added["added"], added["replaced"], added["index"]["items"]) == (1, 0, 41)
    again = service.client.post("/v1/items", json={"items": [item]}, headers=AUTHORIZED).json()
    assert (again["replaced"], again["index"]["items"]) == (1, 41)
    found = service.search(text="red", top=100).json()["results"][0]["hits"]
    (hit,) = {hit["id"]: hit for hit in found if hit["id"] == id}.values()
    assert hit["caption"] == "a pink circle"
    assert hit["picture"] is None
    path = "/v1/items/a%2Fnew%20one%3F%23%25%26%2B%C3%BC"
    assert service.client.get(path).json()["metadata"] == {"year": 1999}
    assert service.client.delete(path, headers=AUTHORIZED).json()["removed"] == 1
    assert error(service.client.delete(path, headers=AUTHORIZED))[:2] == (404, "NOT_FOUND")
    assert service.client.get("/v1/indexes").json()["indexes"][0]["items"] == 40


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": TOKEN}])
def test_changes_need_the_token(service, headers):
    for response in (
        service.client.post("/v1/items", json={"items": [{"id": "x", "text": "y"}]}, headers=headers),
        service.client.delete("/v1/items/1", headers=headers),
    ):
        assert error(response)[:2] == (401, "UNAUTHENTICATED")
        assert response.headers["www-authenticate"] == "Bearer"
    assert service.client.get("/v1/items/1").status_code == 200


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({}, "`items` must be a list of 1 to 1000 items. Received: an empty object."),
        ([1], "`items[0]` must be an object. Received: 1."),
        ([{"id": "x"}], "`items[0]` must have `text` or `image`. Received: neither."),
        ([{"text": "x"}], "`items[0].id` must be an integer"),
        ([{"id": "x", "text": 5}], "`items[0].text` must be a string of 1 to 10000 characters, or null."),
        ([{"id": "x", "text": "a", "metadata": [1]}], "`items[0].metadata` must be an object."),
        ([{"id": "x", "text": "a"}, {"id": "y", "image": b64(b"no")}], "`items[1].image` must be a picture"),
        ([{"id": "x", "caption": "a"}], "`caption` is not a field of an item (`items[0]`)."),
    ],
)
def test_rejected_items(service, items, message):
    status, _, text = error(service.client.post("/v1/items", json={"items": items}, headers=AUTHORIZED))
    assert status == 400
    assert message in text


def test_readiness_metrics_and_document(service):
    assert service.client.get("/readyz").json() == {"ready": True}
    service.search(text="red")
    page = service.client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert 'cmimh_search_request_count{route="search",status="OK"}' in page.text
    assert "cmimh_search_queries_per_request_bucket" in page.text
    document = service.client.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    for path, operations in document["paths"].items():
        for method in set(operations) & {"get", "post", "delete"}:
            answer = service.client.request(method, path.replace("{id}", "no-such-item"))
            assert answer.status_code != 404 or "no item" in answer.json()["error"]["message"], (method, path)


def test_paths_that_do_not_exist(service):
    for path in ("/v2/search", "/v1/items/", "/page/../routes.py", "/page/secret.js", "/search"):
        assert error(service.client.get(path))[:2] == (404, "NOT_FOUND")
    assert error(service.client.put("/v1/search", json={}))[0] == 404


def test_the_page_is_served_with_a_strict_policy(service):
    for path, kind in (("/", "text/html"), ("/page/app.js", "text/javascript"), ("/page/style.css", "text/css")):
        response = service.client.get(path)
        assert response.headers["content-type"].startswith(kind)
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        again = service.client.get(path, headers={"if-none-match": response.headers["etag"]})
        assert again.status_code == 304
        assert not again.content
        assert "http://" not in response.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in response.text


def test_a_body_that_is_too_large(pictures, tmp_path):
    with run_search(lambda *_: FakeIndex(pictures), tmp_path, max_body_bytes=1000) as small:
        assert error(small.search(text="a" * 2000))[0] == 413
        assert small.search(text="red").status_code == 200


def test_without_a_token_the_index_cannot_be_changed(pictures, tmp_path):
    with run_search(lambda *_: FakeIndex(pictures), tmp_path) as running:
        answer = running.client.post("/v1/items", json={"items": [{"id": "x", "text": "y"}]})
        assert error(answer)[:2] == (403, "PERMISSION_DENIED")
        assert "--token-file" in error(answer)[2]
        assert error(running.client.delete("/v1/items/1"))[0] == 403
        hit = running.search(text="red").json()["results"][0]["hits"][0]
        assert hit["picture"] is None
        assert error(running.client.get("/v1/items/1/picture"))[0] == 404


def test_too_many_waiting_requests_and_slow_searches(pictures, tmp_path):
    gate = threading.Event()

    class GatedIndex(FakeIndex):
        def search(self, request):
            assert gate.wait(PATIENCE)
            return super().search(request)

    def run(timeout):
        limits = {"num_threads": 1, "max_waiting": 1, "request_timeout": timeout}
        return run_search(lambda *_: GatedIndex(pictures), tmp_path, **limits)

    with run(timeout=PATIENCE) as running, ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(running.search, text="red") for _ in range(4)]
        # One is searching and one is waiting, so two are rejected.
        rejected = [answer.result().status_code for answer in itertools.islice(as_completed(answers), 2)]
        gate.set()
        assert rejected == [429, 429]
        assert sorted(answer.result().status_code for answer in answers) == [200, 200, 429, 429]
    gate.clear()
    with run(timeout=1) as running:
        assert error(running.search(text="red"))[:2] == (504, "DEADLINE_EXCEEDED")
        gate.set()
        deadline = time.monotonic() + PATIENCE
        # On a busy machine even a fast search may last longer than a second.
        while (status := running.search(text="red").status_code) in (429, 504):
            assert time.monotonic() < deadline
        assert status == 200


def test_errors_of_the_index(pictures, tmp_path):
    with run_search(lambda *_: FakeIndex(pictures), tmp_path) as running:
        running.index.failure = ServingError("UNAVAILABLE", "The database cannot be reached.")
        assert error(running.search(text="red")) == (503, "UNAVAILABLE", "The database cannot be reached.")
        running.index.failure = KeyError("surprise")
        assert error(running.search(text="red"))[:2] == (500, "INTERNAL")
        running.index.failure = None
        assert running.search(text="red").status_code == 200


def test_addresses_of_pictures(service, pictures, tmp_path):
    status, code, message = error(service.search(image_url="http://127.0.0.1/a.png"))
    assert (status, code) == (403, "PERMISSION_DENIED")
    assert "turned off" in message
    with (
        run_search(lambda *_: FakeIndex(pictures), tmp_path, picture_root=pictures) as source,
        run_search(lambda *_: FakeIndex(pictures), tmp_path, image_url_hosts=("127.0.0.1",)) as running,
    ):
        found = running.search(image_url=f"{source.address}/v1/items/1/picture", top=1).json()["results"][0]["hits"]
        assert found[0]["caption"].startswith("a red ")
        assert error(running.search(image_url="http://localhost/a.png"))[0] == 403
        assert error(running.search(image_url="file:///etc/passwd"))[0] == 403
        missing = error(running.search(queries=[{"image_url": f"{source.address}/nothing"}]))
        assert missing[0] == 400
        assert "`queries[0].image_url` must be the address of a picture" in missing[2]
        assert "cannot be fetched" in error(running.search(image_url="http://127.0.0.1:1/a.png"))[2]
        assert "`image_url` must be a picture" in error(running.search(image_url=f"{source.address}/readyz"))[2]


def test_flags(tmp_path, capsys):
    (tmp_path / "token").write_text("secret\n")
    arguments = ["--index", str(tmp_path), "--token-file", str(tmp_path / "token"), "--port", "0"]
    settings = parse_flags([*arguments, "--image-url-host", "a.org", "--image-url-host", "b.org"])
    assert (settings.token, settings.image_url_hosts) == ("secret", ("a.org", "b.org"))
    for wrong, message in (
        (["--index", "nothing"], "`index` must be an existing folder. Received: nothing."),
        ([*arguments, "--picture-root", "nothing"], "`picture_root` must be an existing folder."),
        ([*arguments, "--max-top", "0"], "`max_top` must be at least 1. Received: max_top=0."),
        ([*arguments, "--serving", "host:8500"], "`serving` must be an address such as grpc://127.0.0.1:8500."),
        ([*arguments, "--serving", "grpc://h:1", "--model-base", "x"], "not allowed with"),
        ([*arguments, "--port", "70000"], "`port` must be at most 65535."),
    ):
        with pytest.raises(SystemExit):
            parse_flags(wrong)
        assert message in capsys.readouterr().err
    with pytest.raises(ValueError, match="must not be given together"):
        SearchSettings(index="x", serving="grpc://h:1", model_base=tmp_path)
