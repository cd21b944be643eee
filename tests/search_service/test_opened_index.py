"""The service over a real index and a tiny model: in process, through a model server, and while it is replaced."""

import base64
import csv
import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.features.bag_of_words import BagOfWords
from cmimh_tf.features.descriptor import DESCRIPTOR_DIM
from cmimh_tf.model import CMIMH
from cmimh_tf.search import create_index, open_index
from cmimh_tf.search.adapters import DataSource
from cmimh_tf.search.building import build_index, rehash_index
from cmimh_tf.search.models import describe_model
from serving.export import export_model
from serving.preprocessing import PictureAndCaptionPreprocessing
from serving.search.opened_index import open_version
from serving.search.settings import SearchSettings
from tests.search_service.conftest import TOKEN, run_search
from tests.search_service.fake_index import COLOURS, SHAPES, FakeIndex, draw
from tests.search_service.test_fuzz import some_request
from tests.serving.http_exchange import PATIENCE

NUM_REQUESTS = 1000
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with two versions of an untrained model."""
    base = tmp_path_factory.mktemp("models") / "cmimh"
    bag_of_words = BagOfWords.fit([*COLOURS, *SHAPES], unit_length=True, unknown_column=True)
    for seed in (1, 2):
        units = {"image_units": DESCRIPTOR_DIM, "text_units": bag_of_words.dim}
        model = CMIMH(code_length=32, config=get_preset("smoke"), seed=seed, **units)
        rng = np.random.default_rng(seed)
        model.adapt(rng.random((50, DESCRIPTOR_DIM)), rng.random((50, bag_of_words.dim)))
        export_model(model, base / str(seed), preprocessing=PictureAndCaptionPreprocessing(bag_of_words))
    return base


@pytest.fixture(scope="module")
def table(pictures):
    """40 coloured shapes as a CSV file."""
    path = pictures / "shapes.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "image", "text", "labels", "year"])
        for item in FakeIndex(pictures).sample(40):
            row = [item.id, item.picture, item.caption, "|".join(item.metadata["label"]), item.metadata["year"]]
            writer.writerow(row)
    return path


@pytest.fixture(scope="module")
def built(models, table, tmp_path_factory):
    """A folder with an index of each version of the model."""
    base = tmp_path_factory.mktemp("built")
    for number in ("1", "2"):
        build_index(str(base / number), describe_model(models / number), DataSource(str(table))).close()
    return base


def run(index, pictures, **settings):
    options = {"picture_root": pictures, "token": TOKEN, **settings}
    return run_search(open_version(SearchSettings(index=str(index), **options)), index, **options)


@pytest.fixture(scope="module")
def running(built, pictures, tmp_path_factory):
    """A service over the index of the first version."""
    folder = tmp_path_factory.mktemp("running") / "index"
    shutil.copytree(built / "1", folder)
    with run(folder, pictures) as running:
        yield running


def test_searches(running, models, pictures):
    picture = (pictures / "red-ring.png").read_bytes()
    answer = running.search(
        queries=[
            {"text": "a red circle"},
            {"image": {"b64": base64.b64encode(picture).decode()}},
            {"id": "7", "side": "text"},
            {"code": "00ff00ff"},
        ],
        find="images",
        top=6,
    ).json()
    facts = answer["index"]
    assert (facts["name"], facts["version"], facts["items"], facts["bits"]) == ("index", None, 40, 32)
    assert facts["model"] == describe_model(models / "1").stamp.fingerprint
    by_text, by_picture, by_id, by_code = answer["results"]
    with open_index(running.settings.index) as direct:
        expected = direct.search(text="a red circle", find="images", top=6)
    assert [hit["id"] for hit in by_text["hits"]] == [hit.id for hit in expected]
    assert [hit["score"] for hit in by_text["hits"]] == pytest.approx([hit.score for hit in expected], abs=1e-5)
    # The picture is that of item 5, whose code is that of the query. An untrained model has the same code for others.
    assert by_picture["hits"][0]["distance"] == 0
    assert by_picture["query"]["code"] == running.client.get("/v1/items/5").json()["codes"]["image"]
    assert by_id["query"]["code"] == running.client.get("/v1/items/7").json()["codes"]["text"]
    assert "7" not in [hit["id"] for hit in by_id["hits"]]
    for result in answer["results"]:
        for hit in result["hits"]:
            differing = int(hit["code"], 16) ^ int(result["query"]["code"], 16)
            assert differing.bit_count() == hit["distance"]
    assert by_code["query"]["code"] == "00ff00ff"
    thumbnail = running.client.get(by_picture["hits"][0]["picture"])
    assert thumbnail.headers["content-type"] == "image/webp"


def test_descriptions(running):
    described = running.client.get("/v1/indexes").json()["indexes"][0]
    columns = {column["name"]: column for column in described["columns"]}
    assert columns["label"]["type"] == "label"
    assert set(columns["label"]["values"]) == {*COLOURS, *SHAPES}
    assert columns["year"]["range"] == [2000, 2023]
    assert described["rerankings"] == ["asymmetric", "none"]
    assert len(running.client.get("/v1/items?count=9").json()["items"]) == 9


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"queries": [{"text": "a"}, {"id": "77"}]}, 404, "`queries[1].id` must be the id of an item. Received: '77'."),
        ({"queries": [{"code": "00"}]}, 400, "`queries[0].code` must have 32 bits, 8 hexadecimal digits"),
        ({"text": "red", "where": "yaer > 3"}, 400, "Did you mean year?"),
        ({"text": "red", "where": "year >"}, 400, "`where` cannot be parsed at character"),
        ({"text": "red", "where": "year = 'x'"}, 400, "`where` must compare year with numbers"),
        ({"text": "red", "rerank": "features"}, 400, "Build it with --keep-features."),
    ],
)
def test_rejected_searches(running, body, status, message):
    answer = running.search(**body)
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (status, True), answer.text


def test_items_are_added_and_removed(running):
    picture = {"b64": base64.b64encode(draw("purple", "ring")).decode()}
    item = {"id": "new", "image": picture, "metadata": {"year": 3, "label": ["x"]}}
    text_only = {"id": "words", "text": "purple ring", "picture": "purple-ring.png"}
    added = running.client.post("/v1/items", json={"items": [item, text_only]}, headers=AUTHORIZED).json()
    assert (added["added"], added["replaced"], added["index"]["items"]) == (2, 0, 42)
    found = running.search(text="purple ring", find="images", where="label = 'x'").json()["results"][0]["hits"]
    assert [(hit["id"], hit["picture"]) for hit in found] == [("new", None)]
    sided = running.search(id="words", side="image")
    assert sided.status_code == 400
    assert sided.json()["error"]["message"] == "`side` must be one that the item has. Received: image."
    assert running.client.get("/v1/items/words/picture").status_code == 200
    wrong = {"items": [{"id": "z", "text": "a", "metadata": {"year": "old"}}]}
    rejected = running.client.post("/v1/items", json=wrong, headers=AUTHORIZED)
    assert rejected.status_code == 400
    assert "'z'" in rejected.json()["error"]["message"]
    for id in ("new", "words"):
        assert running.client.delete(f"/v1/items/{id}", headers=AUTHORIZED).json()["removed"] == 1
        assert running.client.get(f"/v1/items/{id}").status_code == 404
    assert running.search(text="red").json()["index"]["items"] == 40


def test_random_requests(running):
    """As `test_fuzz`, on a real index: no request is answered with a 5xx."""
    rng = random.Random(5)
    for _ in range(NUM_REQUESTS):
        method, path, body, headers = some_request(rng)
        response = running.client.request(method, path, content=body, headers=headers)
        assert response.status_code < 500, (method, path, body, response.text)
    assert running.search(text="red").status_code == 200


def test_an_index_of_codes_has_no_model(tmp_path, pictures):
    with create_index(tmp_path / "codes", code_length=16) as made:
        made.add_codes(["a", "b"], image_codes=np.array([[1, 2], [3, 4]], np.uint8))
    with run(tmp_path / "codes", pictures) as running:
        assert running.search(id="a").json()["results"][0]["hits"][0]["id"] == "b"
        answer = running.search(text="red")
        assert answer.status_code == 400
        assert "was built from codes, without a model" in answer.json()["error"]["message"]


def test_a_missing_index_or_model_ends_the_start(built, models, pictures, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="must be the folder of an index"), run(tmp_path / "empty", pictures):
        pass
    wrong = pytest.raises(ValueError, match="must be searched with the model that made it")
    with wrong, run(built / "1", pictures, model_base=models / "2"):
        pass
    # A folder of versions: the one that made the index is used, not the newest one.
    with run(built / "1", pictures, model_base=models) as running:
        assert running.search(text="red").status_code == 200


class Load:
    """Searches in several threads until the block ends. Every answer must be of one version."""

    def __init__(self, address, codes):
        self.address, self.codes = address, codes
        self.seen, self.problems = [], []
        self._stop = threading.Event()

    def _ask(self):
        with httpx.Client(base_url=self.address, timeout=PATIENCE, trust_env=False) as client:
            while not self._stop.is_set():
                try:
                    response = client.post("/v1/search", json={"queries": [{"text": "red"}, {"id": "3"}], "top": 40})
                    answer = response.json()
                    model = answer["index"]["model"]
                    self.seen.append(model)
                    found = {answer["results"][0]["query"]["code"]}
                    found |= {hit["code"] for result in answer["results"] for hit in result["hits"]}
                    if response.status_code != 200 or not found <= self.codes[model]:
                        self.problems.append((model, response.text[:500]))
                except (httpx.HTTPError, KeyError) as error:
                    self.problems.append(repr(error))

    def __enter__(self):
        self._pool = ThreadPoolExecutor(3)
        self._asking = [self._pool.submit(self._ask) for _ in range(3)]
        return self

    def __exit__(self, *_):
        self._stop.set()
        for one in self._asking:
            one.result()
        self._pool.shutdown()

    def wait_for(self, model):
        """Waits until the last answers are of a model."""
        deadline = time.monotonic() + PATIENCE
        while self.seen[-1:] != [model]:
            assert time.monotonic() < deadline, f"no answer of {model}: {self.problems[:3]}"
            time.sleep(0.02)


def codes_of(folder) -> set[str]:
    """All codes that an answer of one version may contain."""
    with open_index(folder) as index:
        codes = {code.hex() for item in index.sample(100) for code in item.codes.values()}
        return codes | {index.search(text="red").codes.tobytes().hex()}


@pytest.fixture(scope="module")
def versions(built, models):
    """The models of both versions, and by fingerprint the codes of an answer."""
    described = [describe_model(models / number) for number in ("1", "2")]
    codes = {one.stamp.fingerprint: codes_of(built / number) for number, one in zip("12", described, strict=True)}
    first, second = codes.values()
    assert not first & second
    return described, codes


def test_a_new_model_takes_over_under_load(built, versions, pictures, tmp_path):
    """`rehash` replaces all codes of the open index."""
    (first, second), codes = versions
    shutil.copytree(built / "1", tmp_path / "index")
    with run(tmp_path / "index", pictures) as running, Load(running.address, codes) as load:
        load.wait_for(first.stamp.fingerprint)
        with open_index(tmp_path / "index") as index:
            rehash_index(index, second)
        load.wait_for(second.stamp.fingerprint)
    assert not load.problems
    print(f"{len(load.seen)} answers over a change of the model, 0 lost")


def test_a_new_version_takes_over_under_load(built, versions, pictures, tmp_path):
    (first, second), codes = versions
    for number in ("1", "2"):
        shutil.copytree(built / number, tmp_path / f"copy-{number}")
    base = tmp_path / "base"
    base.mkdir()
    (tmp_path / "copy-1").rename(base / "1")
    with run(base, pictures) as running, Load(running.address, codes) as load:
        load.wait_for(first.stamp.fingerprint)
        (tmp_path / "copy-2").rename(base / "2")
        load.wait_for(second.stamp.fingerprint)
        facts = running.search(text="red").json()["index"]
        assert (facts["name"], facts["version"]) == ("base", 2)
    assert not load.problems
    print(f"{len(load.seen)} answers over a new version, 0 lost")


def test_queries_are_hashed_by_a_model_server(running, built, models, pictures, tmp_path):
    from serving.server.settings import Settings
    from tests.serving.conftest import _serve

    picture = {"image": {"b64": base64.b64encode(draw("teal", "bar")).decode()}}
    body = {"queries": [{"text": "a teal bar"}, picture, {"text": "red"}], "top": 20}
    expected = running.search(**body).json()["results"]
    (tmp_path / "1").symlink_to(models / "1")
    settings = Settings(model_base=tmp_path, rest_port=0, grpc_port=0, shutdown_timeout=5)
    with _serve(settings) as addresses:
        for server in (f"grpc://127.0.0.1:{addresses.grpc_port}", f"http://127.0.0.1:{addresses.rest_port}"):
            with run(built / "1", pictures, serving=server) as remote:
                found = remote.search(**body).json()["results"]
            for one, other in zip(found, expected, strict=True):
                assert one["query"]["code"] == other["query"]["code"]
                assert [hit["id"] for hit in one["hits"]] == [hit["id"] for hit in other["hits"]]
            # The server does not have the version that made this index.
            with run(built / "2", pictures, serving=server) as remote:
                answer = remote.search(**body)
                assert answer.status_code == 400
                assert "The model server rejected the query" in answer.json()["error"]["message"]
    with run(built / "1", pictures, serving="http://127.0.0.1:1") as remote:
        assert remote.search(text="red").status_code == 503
        assert remote.search(id="3").status_code == 200
