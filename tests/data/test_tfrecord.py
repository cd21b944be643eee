"""TFRecords: every record of every file is read once, under its own id and in its own split."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.data.pairs import DataError
from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.data.sources import open_records


def write_records(path, ids):
    """Vectors under `ids`; an id that is None is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for item_id in ids:
            features = {"image": np.ones(2), "text": np.ones(3), **({} if item_id is None else {"id": item_id})}
            writer.write(make_example(features).SerializeToString())


@pytest.mark.parametrize("sizes", [(3, 0, 2), (0, 3, 2), (0, 0, 3, 0, 2, 0)])
def test_empty_file_hides_no_other(tmp_path, sizes):
    expected = [f"{number}-{row}" for number, size in enumerate(sizes) for row in range(size)]
    for number, size in enumerate(sizes):
        write_records(tmp_path / f"part-{number}.tfrecord", [f"{number}-{row}" for row in range(size)])
    assert [record.id for record in open_records(str(tmp_path))] == expected
    assert len({record.place for record in open_records(str(tmp_path))}) == len(expected)


def test_files_that_are_all_empty_are_refused(tmp_path):
    for number in range(2):
        write_records(tmp_path / f"part-{number}.tfrecord", [])
    with pytest.raises(DataError, match=r"must hold at least one tf.Example. Received: 2 empty files"):
        list(open_records(str(tmp_path)))


def test_ids_may_be_integers(tmp_path):
    write_records(tmp_path / "a.tfrecord", [7, "b", 0, None])
    assert open_records(str(tmp_path / "a.tfrecord")).index().ids == ["7", "b", "0", "3"]


@pytest.mark.parametrize(
    ("item_id", "message"),
    [
        (1.5, r"a.tfrecord, record 1: `id` must be a string or an int64. Received: 1.5"),
        (b"\xff", r"a.tfrecord, record 1: `id` must be UTF-8. Received: b'\\xff'"),
    ],
)
def test_id_of_another_kind_is_refused(tmp_path, item_id, message):
    write_records(tmp_path / "a.tfrecord", ["a", item_id])
    with pytest.raises(DataError, match=message):
        open_records(str(tmp_path / "a.tfrecord")).index()


@pytest.mark.parametrize("folder", ["train", "Split-query", "database"])
def test_one_folder_called_like_a_split_is_plain_data(tmp_path, folder):
    write_records(tmp_path / folder / "pairs-00000-of-00002.tfrecord", "ab")
    write_records(tmp_path / folder / "pairs-00001-of-00002.tfrecord", "cd")
    for spec, ids in (("", "abcd"), ("pairs-00001-of-00002.tfrecord", "cd"), ("pairs-*", "abcd")):
        index = open_records(str(tmp_path / folder / spec)).index()
        assert index.splits is index.is_query is None
        assert index.ids == list(ids)


def test_folders_called_like_several_splits_are_these(tmp_path):
    for folder, ids in {"train": "b", "database": "ab", "query": "q"}.items():
        write_records(tmp_path / folder / "pairs.tfrecord", ids)
    splits = open_records(str(tmp_path)).index().splits
    assert [len(getattr(splits, name)) for name in ("train", "database", "query")] == [1, 2, 1]


def test_files_of_one_split_by_their_own_names_are_refused(tmp_path):
    write_records(tmp_path / "train" / "train-0.tfrecord", "ab")
    with pytest.raises(DataError, match=r"the split database must not be empty"):
        open_records(str(tmp_path / "train")).index()


@pytest.mark.parametrize("count", [1, 31, 32, 4095, 4096])
def test_floats_are_written_and_read_exactly(count, tmp_path):
    values = np.random.default_rng(count).normal(size=count)
    example = make_example({"image": values, "text": values.astype(np.float32), "id": "a"})
    expected = tf.train.FloatList(value=values)
    assert example.features.feature["image"].float_list == expected
    with tf.io.TFRecordWriter(str(tmp_path / "a.tfrecord")) as file:
        file.write(example.SerializeToString())
    record = next(iter(open_records(str(tmp_path / "a.tfrecord"))))
    np.testing.assert_array_equal(record.image, values.astype(np.float32))
    np.testing.assert_array_equal(record.text, values.astype(np.float32))
