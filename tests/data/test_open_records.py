"""`.npz`, `.csv` and TFRecords: their readers return the pairs that the files hold, and name a record that is wrong."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.data import make_synthetic, save_npz
from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.data.records import DataError
from cmimh_tf.data.sources import open_records


def write_picture(path, value=0, size=8):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = np.full((size, size, 3), value, np.uint8)
    path.write_bytes(tf.io.encode_png(picture).numpy())


def write_table(folder, rows, header="image,text,labels"):
    path = folder / "pairs.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def write_records(path, examples):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for features in examples:
            writer.write(make_example(features).SerializeToString())
    return path


def vectors(item_id, width=3, **more):
    return {"image": np.ones(width, np.float32), "text": np.ones(2, np.float32), "id": item_id, **more}


def read_all(source):
    return [record.features() for start, stop in source.index().blocks for record in source.read(start, stop)]


def test_npz_gives_its_arrays(tmp_path):
    data = make_synthetic(300, seed=0, image_dim=5, text_dim=4)
    save_npz(tmp_path / "a.npz", data)
    source = open_records(str(tmp_path / "a.npz"))
    rows = read_all(source)
    assert source.name == "a"
    assert [block[1] for block in source.index().blocks] == [256, 300]
    np.testing.assert_array_equal([row["image"] for row in rows], data.image)
    np.testing.assert_array_equal([row["text"] for row in rows], data.text)
    np.testing.assert_array_equal([row["labels"] for row in rows], data.labels)


def test_fingerprint_follows_the_content(tmp_path):
    path = tmp_path / "a.npz"
    prints = []
    for seed in (0, 1, 0):
        save_npz(path, make_synthetic(20, seed=seed))
        prints.append(open_records(str(path)).fingerprint())
    assert prints[0] == prints[2] != prints[1]


def test_csv_gives_pictures_captions_and_labels(tmp_path):
    write_picture(tmp_path / "p" / "a.png")
    write_picture(tmp_path / "p" / "b.png", 255)
    source = open_records(str(write_table(tmp_path, ["p/a.png,A dog,dog", 'p/b.png,"A cat, a dog",cat|dog'])))
    rows = read_all(source)
    assert source.index().ids == ["p/a.png", "p/b.png"]
    assert [row["caption"] for row in rows] == ["A dog", "A cat, a dog"]
    assert [row["labels"].tolist() for row in rows] == [[0, 1], [1, 1]]  # cat, dog
    assert rows[1]["image_bytes"] == (tmp_path / "p" / "b.png").read_bytes()


def test_csv_split_column_marks_the_queries(tmp_path):
    for name in "abc":
        write_picture(tmp_path / f"{name}.png")
    rows = ["a.png,one,query", "b.png,two,database", "c.png,three,database"]
    index = open_records(str(write_table(tmp_path, rows, "image,caption,split"))).index()
    assert index.is_query.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a.png,,dog", r"pairs.csv, line 3: every pair must have a caption. Received: an empty `text`"),
        (",A dog,dog", r"line 3: every pair must have a picture"),
        ("a.png,A dog,dog", r"line 3: ids must not repeat.*'a.png', as in .*line 2"),
        ("a.png", r"line 3: must have as many fields as the header"),
        ("missing.png,A dog,dog", r"line 3: `image` must be a file that can be read. Received: .*missing.png"),
        ("broken.png,A dog,dog", r"line 3: .*broken.png must be a JPEG, PNG, GIF or BMP picture. Received: 3 bytes"),
    ],
)
def test_bad_row_of_a_csv_is_named(tmp_path, row, message):
    write_picture(tmp_path / "a.png")
    (tmp_path / "broken.png").write_bytes(b"png")
    source = open_records(str(write_table(tmp_path, ["a.png,A cat,cat", row])))
    with pytest.raises(DataError, match=message):
        read_all(source)


def test_repeated_ids_that_the_user_did_not_give_are_explained(tmp_path):
    for name in "ab":
        write_picture(tmp_path / f"{name}.png")
    cure = " It is the picture's path: to give other ids, add a column `id`."
    source = open_records(str(write_table(tmp_path, ["a.png,A cat", "a.png,A dog"], "image,text")))
    with pytest.raises(DataError, match=rf"line 3: ids must not repeat.*'a.png', as in .*line 2\.{cure}$"):
        source.index()
    source = open_records(str(write_table(tmp_path, ["a.png,A cat,x", "b.png,A dog,x"], "image,text,id")))
    with pytest.raises(DataError, match=r"line 3: ids must not repeat.*'x', as in .*line 2\.$"):
        source.index()
    source = open_records(str(write_table(tmp_path, ["a.png,A cat,x", "a.png,A dog,y"], "image,text,id")))
    assert source.index().ids == ["x", "y"]


def test_csv_without_a_column_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"must have a column `text`. Received: columns image, words"):
        open_records(str(write_table(tmp_path, ["a.png,x"], "image,words"))).index()


def test_records_in_one_set_have_no_splits(tmp_path):
    write_records(tmp_path / "part-0", [vectors(f"a{row}") for row in range(6)])
    write_records(tmp_path / "part-1", [vectors(f"b{row}") for row in range(4)])
    source = open_records(str(tmp_path))
    index = source.index()
    assert index.blocks == [(0, 6), (6, 10)]
    assert index.ids[5:7] == ["a5", "b0"]
    assert len(read_all(source)) == 10
    assert index.splits is None


def test_records_with_splits_keep_them(tmp_path):
    write_records(tmp_path / "database-0", [vectors(name) for name in "abc"])
    write_records(tmp_path / "query-0", [vectors("q")])
    write_records(tmp_path / "train-0", [vectors("c")])
    (tmp_path / "_SUCCESS").touch()
    index = open_records(str(tmp_path)).index()
    assert [index.ids[row] for row in index.splits.database] == ["a", "b", "c"]
    assert [index.ids[row] for row in index.splits.query] == ["q"]
    assert [index.ids[row] for row in index.splits.train] == ["c"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"all": [vectors("a"), vectors("b", 4)]}, "all, record 1: `image` must have 3 values, as in the first record"),
        ({"all": [vectors("a"), {"image": np.ones(3, np.float32)}]}, "record 1: must have `text` or `caption`"),
        (
            {"all": [vectors("a"), vectors("b", image=np.array([1, np.nan, 1], np.float32))]},
            "record 1: `image` must be finite floats",
        ),
        ({"all": [vectors("a"), vectors("a")]}, "all, record 1: ids must not repeat"),
        ({"database": [vectors("a")], "query": [vectors("a")]}, "query, record 0: a query must not be in the database"),
        ({"database": [vectors("a")], "query": []}, "the split query must not be empty"),
        (
            {"database": [vectors("a")], "query": [vectors("q")], "train": [vectors("q")]},
            "train, record 0: a training pair must be in the database",
        ),
        (
            {"database": [vectors("a")], "query": [vectors("q")], "more": [vectors("b")]},
            "more, record 0: must belong to a split, as other files do. Received: a file outside of database, query",
        ),
    ],
)
def test_bad_record_is_named(tmp_path, files, message):
    for name, examples in files.items():
        write_records(tmp_path / name, examples)
    with pytest.raises(DataError, match=message):
        read_all(open_records(str(tmp_path)))


def test_file_that_is_no_record_is_named(tmp_path):
    (tmp_path / "a.tfrecord").write_text("not a record, but some text")
    with pytest.raises(DataError, match=r"a.tfrecord, record 0: must be a TFRecord"):
        open_records(str(tmp_path / "a.tfrecord")).index()


@pytest.mark.parametrize("spec", ["no.npz", "no.csv", "no-such-folder"])
def test_missing_path(tmp_path, spec):
    with pytest.raises(FileNotFoundError, match=spec):
        open_records(str(tmp_path / spec))


def test_sources_travel_to_workers(tmp_path):
    save_npz(tmp_path / "a.npz", make_synthetic(20, seed=0))
    source = pickle.loads(pickle.dumps(open_records(str(tmp_path / "a.npz"))))
    assert len(read_all(source)) == 20
