"""Transformed pairs, in memory and in files."""

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf import stored_rows
from cmimh_tf.data.readers.tfrecord import make_example
from cmimh_tf.data.records import DataError
from pipeline.examples import load_transformed

SPEC = {
    "image": tf.io.FixedLenFeature([3], tf.float32),
    "text": tf.io.FixedLenFeature([2], tf.float32),
    "labels": tf.io.FixedLenFeature([2], tf.int64),
    "id": tf.io.FixedLenFeature([], tf.string),
    "position": tf.io.FixedLenFeature([], tf.int64),
}


@pytest.fixture
def files(tmp_path):
    """Forty pairs in two files, in any order; row 7 is all zeros."""
    generator = np.random.default_rng(0)
    image = generator.normal(size=(40, 3))
    image[7] = 0.0
    for number, rows in enumerate(np.split(generator.permutation(40), 2)):
        with tf.io.TFRecordWriter(str(tmp_path / f"part-{number}.gz"), "GZIP") as file:
            for row in rows:
                pair = {"image": image[row], "text": np.array([row, 1.0]), "labels": [1, int(row) % 2]}
                file.write(make_example({**pair, "id": f"pair {row}", "position": row}).SerializeToString())
    return [str(tmp_path / "part-*.gz")]


def test_pairs_come_in_the_order_of_the_split_in_memory_and_in_files(files, tmp_path, monkeypatch):
    in_memory = load_transformed(files, SPEC, tmp_path / "vectors")
    assert isinstance(in_memory.image, np.ndarray)
    assert not (tmp_path / "vectors").exists()
    assert in_memory.ids.tolist() == [f"pair {row}" for row in range(40)]
    np.testing.assert_array_equal(in_memory.text[:, 0], np.arange(40))
    assert in_memory.image[7].any()
    monkeypatch.setattr(stored_rows, "IN_MEMORY_BYTES", 100)
    for _ in range(2):  # The second call replaces what a killed run left.
        in_files = load_transformed(files, SPEC, tmp_path / "vectors")
        assert isinstance(in_files.image, stored_rows.StoredRows)
        assert in_files.fingerprint() == in_memory.fingerprint()
        np.testing.assert_array_equal(in_files.ids, in_memory.ids)


def test_an_empty_split_is_an_error(tmp_path):
    with tf.io.TFRecordWriter(str(tmp_path / "empty.gz"), "GZIP"):
        pass
    with pytest.raises(DataError, match="must not be empty"):
        load_transformed([str(tmp_path / "empty.gz")], SPEC)
