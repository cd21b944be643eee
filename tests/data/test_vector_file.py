"""Vectors of any source as an .npz, and splits that survive from one kind of file to the next."""

import json

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.data import PairedData, load_npz, save_npz
from cmimh_tf.data.records import DataError, open_records
from cmimh_tf.data.tf_examples import make_example
from cmimh_tf.data.vector_file import write_vectors
from cmimh_tf.data.vector_pairs import load_vectors


def write_records(folder, marks, name="pairs-00000-of-00001"):
    folder.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(folder / f"{name}.tfrecord")) as writer:
        for row, mark in enumerate(marks):
            features = {"id": f"{name[6:11]}-{row}", "image": np.ones(2), "text": np.arange(3.0) * row}
            writer.write(make_example({**features, **({"split": mark} if mark else {})}).SerializeToString())
    return str(folder)


@pytest.mark.parametrize(
    ("marks", "is_query", "is_train"),
    [
        (["train", "query", "database"], [0, 1, 0], [1, 0, 0]),
        (["database", "query", "database"], [0, 1, 0], None),
        (["", "", ""], None, None),
    ],
)
def test_marks_of_records_survive_to_an_npz_and_back(tmp_path, marks, is_query, is_train):
    reader = open_records(write_records(tmp_path / "records", marks))
    write_vectors(reader, tmp_path / "a.npz")
    for data in (
        load_vectors(reader),
        load_npz(tmp_path / "a.npz"),
        load_vectors(open_records(str(tmp_path / "a.npz"))),
    ):
        assert data.ids.tolist() == ["00000-0", "00000-1", "00000-2"]
        assert (None if data.is_query is None else data.is_query.tolist()) == is_query
        assert (None if data.is_train is None else data.is_train.tolist()) == is_train
        # The first text is all 0, which files may hold and `PairedData` not.
        np.testing.assert_allclose(data.text, [[0, 0, 0], [0, 1, 2], [0, 2, 4]], atol=1e-30)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (["train", "test"], r"record 1: `split` must be train, database or query. Received: 'test'"),
        (["train", "database"], r"`split` must mark some rows query, not all. Received: 0"),
    ],
)
def test_wrong_marks_are_refused(tmp_path, marks, message):
    with pytest.raises(DataError, match=message):
        open_records(write_records(tmp_path / "records", marks)).index()


def test_folder_that_lacks_a_shard_is_refused_but_not_a_shard_alone(tmp_path):
    folder = write_records(tmp_path / "records", ["", ""], "pairs-00000-of-00003")
    write_records(tmp_path / "records", ["", ""], "pairs-00002-of-00003")
    with pytest.raises(DataError, match=r"records/pairs: all 3 shards must be there. Received: 2"):
        open_records(folder).index()
    assert len(open_records(f"{folder}/pairs-00000-of-00003.tfrecord").index().ids) == 2


def test_classes_come_from_the_description_beside_shards(tmp_path):
    folder = write_records(tmp_path / "records", ["", ""])
    (tmp_path / "records" / "pairs.json").write_text(json.dumps({"classes": ["x", "y"]}))
    assert open_records(folder).index().classes == ["x", "y"]


def test_official_training_set_of_an_npz_reaches_the_pipeline(tmp_path):
    marks = {"is_query": [True, False, False, False], "is_train": [False, False, True, False]}
    save_npz(tmp_path / "a.npz", PairedData(np.ones((4, 1)), np.ones((4, 1)), **marks))
    splits = open_records(str(tmp_path / "a.npz")).index().splits
    assert [getattr(splits, name).tolist() for name in ("train", "database", "query")] == [[2], [1, 2, 3], [0]]


def test_long_captions_are_cut(tmp_path):
    captions = ["é" * 200_000, "A dog"]
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as writer:
        for row, caption in enumerate(captions):
            features = {"id": str(row), "image": np.ones(2), "text": np.ones(3), "caption": caption}
            writer.write(make_example(features).SerializeToString())
    reader = open_records(str(tmp_path / "a.tfrecord"))
    write_vectors(reader, tmp_path / "a.npz")
    for data in (load_vectors(reader), load_npz(tmp_path / "a.npz")):
        assert data.captions.tolist() == ["é" * 1000, "A dog"]
