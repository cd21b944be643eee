"""Indexes from data: built, continued, extended and hashed again."""

import json

import numpy as np
import pytest

from cmimh_tf.data.npz import save_npz
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.search import building
from cmimh_tf.search.adapters import DataSource
from cmimh_tf.search.api import create_index, open_index
from cmimh_tf.search.building import add_code_file, add_data, build_from_codes, build_index, rehash_index
from cmimh_tf.search.engines.interface import IndexNotFound
from cmimh_tf.search.items import ItemError
from cmimh_tf.search.models import HashingModel, ModelMismatch, describe_model
from tests.search.conftest import CAPTIONS, draw_picture, random_codes


def write_vectors(path, count, first=0, captions=True, **arrays):
    numbers = np.random.default_rng(first)
    data = PairedData(
        image=numbers.random((count, 12), np.float32),
        text=numbers.random((count, 8), np.float32),
        ids=np.array([f"pair-{number}" for number in range(first, first + count)]),
        captions=np.array([f"caption {number}" for number in range(first, first + count)]) if captions else None,
        labels=np.eye(3, dtype=np.uint8)[np.arange(count) % 3],
        classes=np.array(["dog", "cat", "bird"]),
    )
    save_npz(path, data)
    if arrays:
        with np.load(path) as archive:
            np.savez(path, **archive, **arrays)
    return data


@pytest.fixture
def built(runs, tmp_path):
    """An index of 50 pairs of vectors, their data, and the model."""
    data = write_vectors(tmp_path / "pairs.npz", 50, year=np.arange(1970, 2020), place=np.array(["Rome", "Oslo"] * 25))
    index = build_index(
        str(tmp_path / "index"), describe_model(runs[0] / "first"), DataSource(str(tmp_path / "pairs.npz"))
    )
    yield index, data, runs[1]["first"]
    index.close()


def test_vectors_become_codes_captions_and_metadata(built, tmp_path, runs):
    index, data, model = built
    items = index.get(data.ids.tolist())
    assert [item.codes["image"] for item in items] == [code.tobytes() for code in model.hash_images(data.image)]
    assert [item.codes["text"] for item in items] == [code.tobytes() for code in model.hash_texts(data.text)]
    assert items[4].caption == "caption 4"
    assert items[4].metadata == {"label": ["cat"], "year": 1974, "place": "Rome"}
    assert index.columns == {
        **{"id": "string", "caption": "string", "picture": "string"},
        **{"label": "labels", "year": "number", "place": "string"},
    }
    header = index.header
    assert header.model.path == str(runs[0] / "first")
    assert header.sources[0]["data"] == str(tmp_path / "pairs.npz")
    assert index.verify() == []
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.npz", "index"] or len(list(tmp_path.iterdir())) == 2


def test_queries_by_vectors_rank_by_logits(built):
    index, data, model = built
    found = index.search(texts=[data.text[3], data.text[4]], find="images", top=5)
    codes = model.hash_texts(data.text[3:5])
    logits = np.asarray(model.code_logits("text", data.text[3:5]))
    plain = index.search_codes(codes, logits=logits, top=5)
    assert [[hit.id for hit in hits] for hits in found] == plain.ids.tolist()
    assert np.array_equal(found.codes, codes)
    assert index.search(texts=[data.text[3]], top=5)[0].id == plain.ids[0, 0]
    summaries = {summary.name: summary for summary in index.column_summaries()}
    assert summaries["year"].range == (1970, 2019)
    assert summaries["place"].values == ["Rome", "Oslo"]
    assert summaries["label"].values == ["dog", "cat", "bird"]
    assert [item.id for item in index.sample(3)] == ["pair-0", "pair-24", "pair-49"]


def test_vectors_that_are_not_finite_are_neither_stored_nor_searched(built):
    index, data, _ = built
    wrong = np.full(12, np.nan, np.float32)
    with pytest.raises(ValueError, match=r"`image` must be finite\. Received: .* row 1"):
        index.add(["a", "b"], images=[data.image[0], wrong], texts=list(data.text[:2]))
    with pytest.raises(ValueError, match=r"`image` must be finite\. Received: .* row 0"):
        index.search(images=[wrong])
    assert len(index) == 50


def test_a_build_that_stopped_continues_where_it_was(runs, tmp_path, monkeypatch):
    write_vectors(tmp_path / "pairs.npz", 50)
    monkeypatch.setattr(building, "_VECTORS_AT_ONCE", 8)
    hashed = []
    original = HashingModel.hash_images

    def stop_after(limit):
        def hash_images(self, images):
            if len(hashed) == limit:
                raise KeyboardInterrupt
            hashed.append(len(images))
            return original(self, images)

        monkeypatch.setattr(HashingModel, "hash_images", hash_images)

    def build():
        return build_index(
            str(tmp_path / "index"), describe_model(runs[0] / "first"), DataSource(str(tmp_path / "pairs.npz"))
        )

    stop_after(3)
    with pytest.raises(KeyboardInterrupt):
        build()
    with pytest.raises(IndexNotFound):
        open_index(tmp_path / "index")
    stop_after(None)
    with build() as index:
        assert len(index) == 50
        assert index.search_codes(runs[1]["first"].hash_images(np.ones((1, 12))), top=50).ids.size == 50
    assert hashed == [8, 8, 8, 8, 8, 8, 2]
    # Other data start from the beginning.
    hashed.clear()
    stop_after(3)
    (tmp_path / "index").rename(tmp_path / "done")
    with pytest.raises(KeyboardInterrupt):
        build()
    write_vectors(tmp_path / "pairs.npz", 20, first=100)
    stop_after(None)
    with build() as index:
        assert len(index) == 20
    assert hashed == [8, 8, 8, 8, 8, 4]


def test_an_unknown_scheme_is_rejected_before_anything_is_written(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("codes.npz", image_codes=np.zeros((3, 2), np.uint8))
    with pytest.raises(ValueError, match=r"`index` must be a folder, or start with .*Received: foo://\.\.\."):
        build_from_codes("foo://x", tmp_path / "codes.npz")
    data = write_vectors(tmp_path / "pairs.npz", 5)
    assert len(data) == 5
    with pytest.raises(ValueError, match=r"Received: foo://\.\.\."):
        build_index("foo://x", describe_model(runs[0] / "first"), DataSource("pairs.npz"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["codes.npz", "pairs.npz"]


def test_an_existing_folder_is_not_overwritten(built, tmp_path, runs):
    with pytest.raises(FileExistsError, match="must not exist yet"):
        build_index(str(tmp_path / "index"), describe_model(runs[0] / "first"), DataSource(str(tmp_path / "pairs.npz")))


def test_adding_replaces_items_with_the_same_id(built, tmp_path, runs):
    index, _, model = built
    more = write_vectors(tmp_path / "more.npz", 20, first=40)
    added = add_data(index, DataSource(str(tmp_path / "more.npz")))
    assert (added.added, added.replaced) == (20, 10)
    assert len(index) == 60
    assert index.get(["pair-45"])[0].codes["image"] == model.hash_images(more.image[5:6]).tobytes()
    assert [source["data"] for source in index.header.sources] == [
        str(tmp_path / "pairs.npz"), str(tmp_path / "more.npz"),
    ]  # fmt: skip
    with pytest.raises(ModelMismatch):
        add_data(index, DataSource(str(tmp_path / "more.npz")), runs[0] / "second")
    assert index.add(["own"], images=[more.image[0]], metadata=[{"year": 3}]).added == 1
    assert index.get(["own"])[0].metadata == {"year": 3}


@pytest.fixture
def table(tmp_path):
    """A CSV file of pictures, captions, labels and further columns."""
    (tmp_path / "pictures").mkdir()
    rows = ["image,text,labels,year,zip,note"]
    for number, caption in enumerate(CAPTIONS):
        (tmp_path / "pictures" / f"{number}.png").write_bytes(draw_picture(number))
        year = "" if number == 2 else 2000 + number
        rows.append(f"pictures/{number}.png,{caption},{'dog|cat' if 'dog' in caption else ''},{year},007,n{number}")
    (tmp_path / "pairs.csv").write_text("\n".join(rows))
    return tmp_path / "pairs.csv"


def test_pictures_and_captions_of_a_table(table, exports, tmp_path):
    base, _, _ = exports
    with build_index(str(tmp_path / "index"), describe_model(base), DataSource(str(table))) as index:
        assert index.header.model.version == 2
        assert index.header.columns == {"year": "number", "zip": "string", "note": "string", "label": "labels"}
        item = index.get(["pictures/1.png"])[0]
        assert item.caption == "a blue dog"
        assert item.picture == str(tmp_path / "pictures" / "1.png")
        assert item.metadata == {"year": 2001, "zip": "007", "note": "n1", "label": ["cat", "dog"]}
        assert index.get(["pictures/2.png"])[0].metadata == {"zip": "007", "note": "n2", "label": ["cat", "dog"]}
        hits = index.search(texts=["a blue dog"], find="texts", top=1)
        assert (hits[0].id, hits[0].distance) == ("pictures/1.png", 0)
        hits = index.search(image=tmp_path / "pictures" / "3.png", find="images", top=5)
        distances = {hit.id: hit.distance for hit in hits}
        assert (len(distances), distances["pictures/3.png"]) == (5, 0)
        assert hits[0].picture.endswith(".png")
        assert [hit.found for hit in index.search(text="red", top=2)] == ["image", "image"]
        assert [hit.found for hit in index.search(image=draw_picture(1), top=2)] == ["text", "text"]
        # More rows must fit the columns.
        wrong = table.with_name("wrong.csv")
        wrong.write_text("image,text,id,year\npictures/1.png,a cat,new,soon\n")
        with pytest.raises(ItemError, match=r"wrong\.csv, line 2: `year` must be a number, as in the index\."):
            add_data(index, DataSource(str(wrong)))
        assert len(index) == 5


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_further_columns_of_other_tables(table, exports, tmp_path, kind):
    rows = [
        {
            "image": f"pictures/{number}.png",
            "text": caption,
            "id": f"i{number}",
            "year": 2000 + number,
            "tags": ["a", "b"],
        }
        for number, caption in enumerate(CAPTIONS)
    ]
    path = tmp_path / f"pairs.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    with build_index(str(tmp_path / "index"), describe_model(exports[0]), DataSource(str(path))) as index:
        assert index.get(["i3"])[0].metadata == {"year": 2003, "tags": ["a", "b"]}
        assert index.header.columns == {"year": "number", "tags": "labels"}
        assert index.get(["i3"])[0].picture == str(tmp_path / "pictures" / "3.png")


def test_a_run_of_vectors_cannot_hash_pictures(table, runs, tmp_path):
    with pytest.raises(ValueError, match=r"it is not known how they were made of pictures\. Name the features"):
        build_index(str(tmp_path / "index"), describe_model(runs[0] / "first"), DataSource(str(table)))
    assert not (tmp_path / "index").exists()


def test_rehashing_from_the_data(built, runs, tmp_path):
    index, data, _ = built
    index.remove(ids=["pair-7"])
    assert index.rehash(runs[0] / "long") == 49
    new = runs[1]["long"]
    kept = [number for number in range(50) if number != 7]
    items = index.get(data.ids[kept].tolist())
    assert [item.codes["image"] for item in items] == [code.tobytes() for code in new.hash_images(data.image[kept])]
    assert items[3].metadata["label"] == ["dog"]
    assert index.code_length == 32
    assert index.header.model.path == str(runs[0] / "long")
    assert index.verify() == []
    # Queries use the new model.
    assert index.search(texts=[data.text[0]], find="texts", top=1)[0].id == "pair-0"


def test_rehashing_without_the_data_is_refused(built, runs, tmp_path):
    index, data, _ = built
    (tmp_path / "pairs.npz").rename(tmp_path / "moved.npz")
    before = index.get(["pair-1"])[0].codes
    with pytest.raises(ValueError, match=r"neither for the image of id 'pair-0'\. Name the data: --data DATA"):
        index.rehash(runs[0] / "second")
    assert index.get(["pair-1"])[0].codes == before
    assert index.rehash(runs[0] / "second", data=[str(tmp_path / "moved.npz")]) == 50
    assert index.get(["pair-1"])[0].codes["text"] == runs[1]["second"].hash_texts(data.text[1:2]).tobytes()


def test_rehashing_from_stored_pictures_and_captions(table, exports, tmp_path):
    base, models, words = exports
    old, new = describe_model(base / "1"), describe_model(base / "2")
    with build_index(str(tmp_path / "index"), old, DataSource(str(table)), keep_features=True) as index:
        # An item that was changed since is not hashed from the old data.
        index.add(["pictures/0.png"], images=[tmp_path / "pictures" / "4.png"], texts=["the dog and the cat"])
        index.add(["text only"], texts=["red birds"])
        assert rehash_index(index, new) == 6
        assert index.get(["text only"])[0].codes == {
            "text": models[2].hash_texts(words(["red birds"]).numpy()).tobytes()
        }
        changed, same = index.get(["pictures/0.png", "pictures/4.png"])
        assert changed.codes["image"] == same.codes["image"]
        assert changed.codes["text"] == models[2].hash_texts(words(["the dog and the cat"]).numpy()).tobytes()
        table.unlink()
        assert rehash_index(index, old) == 6
        assert (
            index.get(["pictures/1.png"])[0].codes["text"]
            == models[1].hash_texts(words([CAPTIONS[1]]).numpy()).tobytes()
        )
        assert index.search(text="red birds", find="texts", rerank="features", top=1)[0].score > 0.99
        assert index.verify() == []


def test_codes_of_a_file(tmp_path, random, runs):
    codes = {side: random_codes(random, 40, 16) for side in ("image", "text")}
    file = tmp_path / "codes.npz"
    np.savez(
        file,
        ids=np.arange(40),
        image_codes=codes["image"],
        text_codes=codes["text"],
        captions=np.array(["c"] * 40),
        labels=np.eye(40, 2, dtype=int),
        classes=np.array(["dog", "cat"]),
        year=np.arange(40),
        other=np.eye(3),
    )
    with build_from_codes(str(tmp_path / "index"), file) as index:
        item = index.get([1])[0]
        assert (item.caption, item.metadata) == ("c", {"year": 1, "label": ["cat"]})
        assert item.codes == {side: codes[side][1].tobytes() for side in codes}
        assert index.header.model is None
        with pytest.raises(ModelMismatch, match="built from codes"):
            index.search(text="a dog")
        np.savez(file, ids=np.array(["39", "new"]), text_codes=codes["text"][:2])
        added = add_code_file(index, file)
        assert (added.added, added.replaced, len(index)) == (2, 1, 41)
        np.savez(file, ids=np.array(["x", "y", "x"]), text_codes=codes["text"][:3])
        with pytest.raises(ItemError, match="'x' twice"):
            add_code_file(index, file)
    with pytest.raises(ValueError, match="must have 16 bits, as the codes"):
        build_from_codes(str(tmp_path / "other"), file, described=describe_model(runs[0] / "long"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [({"codes": np.zeros(3)}, "must hold `image_codes` or `text_codes`. Received: codes"), (None, "an .npz file")],
)
def test_files_without_codes_are_rejected(tmp_path, arrays, message):
    file = tmp_path / "codes.npz"
    file.write_bytes(b"nothing") if arrays is None else np.savez(file, **arrays)
    with pytest.raises(ValueError, match=message):
        build_from_codes(str(tmp_path / "index"), file)
    with pytest.raises(FileNotFoundError):
        build_from_codes(str(tmp_path / "index"), tmp_path / "missing.npz")
    assert not (tmp_path / "index").exists()


def test_a_build_that_was_killed_in_a_database_is_not_an_index(address, runs, tmp_path, monkeypatch):
    write_vectors(tmp_path / "pairs.npz", 12)
    described, source = describe_model(runs[0] / "first"), DataSource(str(tmp_path / "pairs.npz"))
    original = HashingModel.hash_texts

    def stop(self, texts):
        raise KeyboardInterrupt

    monkeypatch.setattr(HashingModel, "hash_texts", stop)
    with pytest.raises(KeyboardInterrupt):
        build_index(address, described, source)
    with pytest.raises(IndexNotFound):
        open_index(address)
    monkeypatch.setattr(HashingModel, "hash_texts", original)
    with build_index(address, described, source) as index:
        assert len(index) == 12
        assert index.header.sources[0]["fingerprint"] == source.fingerprint()
    with pytest.raises(FileExistsError):
        build_index(address, described, source)


def test_an_index_can_be_made_for_a_model(runs, tmp_path):
    with create_index(tmp_path / "index", model=runs[0] / "first") as index:
        assert index.code_length == 16
        assert index.header.model.fingerprint == describe_model(runs[0] / "first").stamp.fingerprint
    with pytest.raises(ValueError, match="must be the model's, 16"):
        create_index(tmp_path / "other", model=runs[0] / "first", code_length=32)
    with pytest.raises(ValueError, match="`code_length` must be given, or `model`"):
        create_index(tmp_path / "other")
