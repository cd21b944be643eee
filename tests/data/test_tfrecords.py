"""TFRecords: every record of every file is read once, under its own id and in its own split."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.data.records import DataError, open_records
from cmimh_tf.data.tf_examples import make_example


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
