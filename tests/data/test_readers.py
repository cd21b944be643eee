"""Tables, tar shards and TFDS data give the pairs that they hold, and name the record that is wrong."""

import io
import json
import pickle
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from cmimh_tf.data.mirflickr25k import mirflickr25k_dataset_builder as mirflickr25k
from cmimh_tf.data.mirflickr25k.official_pairs import MirflickrCounts
from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.readers import tfds_data
from cmimh_tf.data.readers.tfds_data import TfdsReader
from cmimh_tf.data.readers.tfds_features import caption_of, find_roles, labels_of
from cmimh_tf.data.records import DataError, open_records
from cmimh_tf.data.retrieval_builder import RetrievalConfig
from cmimh_tf.data.vector_pairs import load_vectors

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")

DUMMY_DATA = Path(mirflickr25k.__file__).parent / "dummy_data"
PICTURES = [(DUMMY_DATA / "mirflickr" / f"im{number}.jpg").read_bytes() for number in (1, 2, 3)]


def write_pictures(folder):
    for name, picture in zip("abc", PICTURES, strict=True):
        (folder / f"{name}.jpg").write_bytes(picture)


def write_lines(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def write_tar(path, files, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return str(path)


def npy(values):
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values))
    return buffer.getvalue()


def problems(reader):
    """All messages of a source, in order and without repeats."""
    index = reader.survey()
    found = list(index.problems)
    for start, stop in index.blocks:
        found += [record for record in reader.scan(start, stop) if isinstance(record, DataError)]
    return list(dict.fromkeys(map(str, found)))


def test_json_lines_give_pictures_captions_and_labels(tmp_path):
    write_pictures(tmp_path)
    rows = [
        {"file_name": "a.jpg", "caption": " A dog ", "labels": ["dog"], "id": 7},
        {"file_name": "b.jpg", "caption": "A cat, a dog", "labels": "cat|dog"},
    ]
    reader = open_records(write_lines(tmp_path / "captions.jsonl", rows[0], "", rows[1]))
    records = list(reader)
    assert reader.index().classes == ["cat", "dog"]
    assert [record.id for record in records] == ["7", "b.jpg"]
    assert [record.caption for record in records] == ["A dog", "A cat, a dog"]
    assert [record.labels.tolist() for record in records] == [[0, 1], [1, 1]]
    assert records[1].image_bytes == PICTURES[1]
    assert records[1].place.endswith("captions.jsonl, line 3")


def test_json_lines_may_hold_vectors_and_splits(tmp_path):
    column = ("train", "database", "train", "query")
    rows = [{"id": str(row), "image": [row, 1], "text": [1.5], "split": split} for row, split in enumerate(column)]
    index = open_records(write_lines(tmp_path / "a.jsonl", *rows)).index()
    assert index.splits.train.tolist() == [0, 2]
    assert index.splits.database.tolist() == [0, 1, 2]
    assert index.splits.query.tolist() == [3]


def test_every_bad_line_is_named_and_the_others_are_read(tmp_path):
    write_pictures(tmp_path)
    (tmp_path / "broken.jpg").write_bytes(PICTURES[0][:200])
    good = {"image": "a.jpg", "text": "x"}
    path = write_lines(
        tmp_path / "a.jsonl",
        good,
        '{"image": ',
        "[1]",
        {"image": "b.jpg", "text": " "},
        {"image": "missing.jpg", "text": "x"},
        {"image": "broken.jpg", "text": "x"},
        {"image": "c.jpg", "text": "x", "labels": 3},
        {"image": [1, None], "text": "x", "id": 1},
        {"image": "c.jpg", "text": "x", "split": "test"},
        good,
    )
    reader = open_records(path)
    found = problems(reader)
    expected = {
        2: "must be one JSON object",
        3: "must be one JSON object",
        4: "every pair must have a caption. Received: an empty `text`",
        5: "`image` must be a file that can be read",
        6: "must be a JPEG, PNG, GIF or BMP picture. Received: 200 bytes",
        7: "`labels` must be names",
        8: "`image` must be a list of finite numbers",
        9: "`split` must be train, database or query. Received: 'test'",
        10: "ids must not repeat",
    }
    assert len(found) == len(expected)
    for line, message in expected.items():
        assert any(f"a.jsonl, line {line}: " in problem and message in problem for problem in found), line
    with pytest.raises(DataError, match="line 2"):
        reader.index()


def test_parquet_gives_paths_bytes_and_vectors(tmp_path):
    write_pictures(tmp_path)
    tables = {
        "paths": {"image": ["a.jpg", "b.jpg"], "caption": ["x", "y"], "labels": [["u"], ["v", "u"]]},
        "bytes": {"image": PICTURES[:2], "caption": ["x", "y"], "id": ["1", "2"]},
        "structs": {
            "image": [{"bytes": PICTURES[0], "path": "p"}, {"bytes": None, "path": "b.jpg"}],
            "text": ["x", "y"],
        },
        "vectors": {"image": [[1.0, 2.0], [3.0, 4.0]], "text": [[1], [2]], "id": [1, 2]},
    }
    for name, columns in tables.items():
        # Two row groups, so that a block that is not the first is read too.
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=1)
    pictures = {name: list(open_records(str(tmp_path / f"{name}.parquet"))) for name in tables}
    for name in ("paths", "bytes", "structs"):
        assert [record.image_bytes for record in pictures[name]] == PICTURES[:2]
        assert [record.caption for record in pictures[name]] == ["x", "y"]
    assert [record.labels.tolist() for record in pictures["paths"]] == [[1, 0], [1, 1]]
    assert [record.image.tolist() for record in pictures["vectors"]] == [[1, 2], [3, 4]]
    second = next(open_records(str(tmp_path / "vectors.parquet")).read(1, 2))
    assert (second.id, second.place) == ("2", f"{tmp_path}/vectors.parquet, row 1")


def test_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"a.parquet: must be a Parquet file"):
        open_records(str(tmp_path / "a.parquet")).index()


def test_folder_with_one_table_is_that_table(tmp_path):
    write_pictures(tmp_path)
    with pytest.raises(DataError, match=r"must have a table of the pictures' captions.*3 pictures"):
        open_records(str(tmp_path))
    write_lines(tmp_path / "captions.jsonl", {"image": "a.jpg", "text": "x"})
    assert [record.id for record in open_records(str(tmp_path))] == ["a.jpg"]
    write_lines(tmp_path / "more.csv", "image,text")
    with pytest.raises(DataError, match=r"must have one table.*captions.jsonl, more.csv"):
        open_records(str(tmp_path))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_tar_shards_give_their_samples(tmp_path, mode):
    suffix = ".tar.gz" if mode == "w:gz" else ".tar"
    first = {
        "./000.jpg": PICTURES[0],
        "./000.txt": b"A dog\n",
        "./000.cls": b"dog",
        "./001.json": json.dumps({"caption": "A cat", "labels": ["cat"], "id": "two"}).encode(),
        "./001.jpg": PICTURES[1],
    }
    second = {"000.image.npy": npy([1.0, 2.0]), "000.text.npy": npy([3.0])}
    for shard, files in enumerate((first, second)):
        write_tar(tmp_path / f"part-{shard}{suffix}", files, mode)
    reader = pickle.loads(pickle.dumps(open_records(str(tmp_path / "part-*"))))
    records = list(reader)
    assert reader.index().classes == ["cat", "dog"]
    assert [record.id for record in records] == ["part-0/000", "two", "part-1/000"]
    assert [record.caption for record in records] == ["A dog", "A cat", None]
    assert [record.image_bytes for record in records] == [*PICTURES[:2], None]
    assert [record.labels.tolist() for record in records] == [[0, 1], [1, 0], [0, 0]]
    assert (records[2].image.tolist(), records[2].text.tolist()) == ([1, 2], [3])


def test_bad_samples_of_a_tar_are_named(tmp_path):
    files = {
        "a.jpg": PICTURES[0],
        "b.txt": b"x",
        "c.jpg": b"none",
        "c.txt": b"x",
        "d.json": b"{",
        "e.jpg": PICTURES[0],
        "e.txt": b"x",
    }
    found = problems(open_records(write_tar(tmp_path / "a.tar", files)))
    for sample, message in {
        "a": "every pair must have a caption. Received: .jpg",
        "b": "every pair must have a picture. Received: .txt",
        "c": "must be a JPEG",
        "d": ".json must be a JSON object",
    }.items():
        assert sum(f"a.tar, sample {sample}: " in problem and message in problem for problem in found) == 1
    assert len(found) == 4


def test_truncated_tar_is_named(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(path, {f"{row:03}.image.npy": npy(np.ones(400)) for row in range(3)})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"a.tar.*(truncated|damaged)"):
        list(open_records(str(path)))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The dummy files of MIR-Flickr25k, prepared as a user would: found in TFDS's folder of manual downloads."""
    data_dir = tmp_path_factory.mktemp("tfds")
    shutil.copytree(DUMMY_DATA, data_dir / "downloads" / "manual")
    config = RetrievalConfig("dummy", num_queries=2, num_train=4, counts=MirflickrCounts(12, 5, 9))
    with pytest.MonkeyPatch.context() as patch:
        builder = mirflickr25k.Builder(config=config, data_dir=str(data_dir))
        patch.setattr(tfds_data, "make_builder", lambda name, data_dir: builder)
        return TfdsReader.open("mirflickr25k", str(data_dir))


def test_tfds_data_keep_their_splits_and_their_order(prepared):
    index = prepared.index()
    assert prepared.name == "mirflickr25k-dummy"
    assert [len(getattr(index.splits, name)) for name in ("train", "database", "query")] == [4, 7, 2]
    # The first of the database are trained on, as `make_splits` has it.
    np.testing.assert_array_equal(index.splits.train, index.splits.database[:4])
    records = {record.id: record for record in prepared}
    assert sorted(records) == sorted(f"im{number}" for number in (1, 2, 3, 5, 6, 8, 10, 11, 12))
    assert records["im1"].image_bytes == PICTURES[0]
    assert records["im1"].caption == "sky nikon"
    assert records["im1"].text.tolist() == [0, 1, 1, 0, 0]
    assert records["im1"].labels.shape == (24,)
    assert open_records(prepared.folder) == prepared


def test_official_files_that_are_missing_are_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"mscoco|cocodataset.org"):
        TfdsReader.open("mscoco", str(tmp_path))


def test_unknown_setting_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"settings main, main_seed1.*Received: 'all'"):
        TfdsReader.open("nuswide/all", str(tmp_path))


def test_roles_of_foreign_features():
    import tensorflow_datasets as tfds

    types = tfds.features
    features = types.FeaturesDict(
        {
            "image": types.Image(),
            "image/filename": types.Text(),
            "captions": types.Sequence({"id": np.int64, "text": types.Text()}),
            "objects": types.Sequence({"label": types.ClassLabel(names=["cat", "dog"])}),
        }
    )
    roles = find_roles(features, "coco_captions")
    assert (roles.image, roles.caption, roles.labels) == ("image", ("captions", "text"), ("objects", "label"))
    assert (roles.classes, roles.id) == (["cat", "dog"], "image/filename")
    example = {"captions": {"text": np.array([b"one", b"two"], object)}, "objects": {"label": np.array([1, 1])}}
    assert {caption_of(example, roles.caption, "here", row) for row in range(20)} == {"one", "two"}
    assert labels_of(example, roles.labels, 2).tolist() == [0, 1]
    with pytest.raises(DataError, match=r"must have a picture and a caption among its features. Received: label"):
        find_roles(types.FeaturesDict({"label": types.ClassLabel(num_classes=2)}), "mnist")


def test_vectors_of_any_source_become_paired_data(tmp_path):
    rows = [
        {"id": "a", "image": [1, 2], "text": [0, 0, 0], "split": "query", "labels": ["u"]},
        {"id": "b", "image": [3, 4], "text": [5, 6, 7], "split": "database"},
    ]
    data = load_vectors(open_records(write_lines(tmp_path / "a.jsonl", *rows)))
    assert isinstance(data, PairedData)
    assert data.is_query.tolist() == [True, False]
    assert data.labels.tolist() == [[1], [0]]
    np.testing.assert_allclose(data.text, [[0, 0, 0], [5, 6, 7]], atol=1e-30)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"id": "b", "image": [3], "text": [5]}, "line 2: `image` must have 2 values, as in the first record"),
        ({"id": "b", "image": [3, 4], "text": "x"}, r"line 2: `text` must be a vector.*cmimh_tf.features"),
    ],
)
def test_records_without_fitting_vectors_are_named(tmp_path, second, message):
    path = write_lines(tmp_path / "a.jsonl", {"id": "a", "image": [1, 2], "text": [1]}, second)
    with pytest.raises(DataError, match=message):
        load_vectors(open_records(path))
