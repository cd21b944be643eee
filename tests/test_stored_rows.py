import numpy as np
import pytest

from cmimh_tf.data.pairs import PairedData
from cmimh_tf.layers import moments
from cmimh_tf.stored_rows import StoredRows, store_rows

VALUES = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)


@pytest.fixture
def stored(tmp_path):
    return store_rows(tmp_path / "rows", [{"values": VALUES[:20]}, {"values": VALUES[20:]}])["values"]


@pytest.mark.parametrize(
    "rows", [slice(None), slice(3, 7), slice(48, 99), slice(0, 50, 7), [4], [], [9, 2, 2, 3, 49], np.arange(50)[::-1]]
)
def test_rows_are_those_of_the_array(stored, rows):
    np.testing.assert_array_equal(stored[rows], VALUES[np.asarray(rows, int) if isinstance(rows, list) else rows])


def test_a_view_of_a_view_reads_the_right_rows(stored):
    first, second = np.random.default_rng(1).permutation(50)[:20], np.array([3, 0, 19])
    view = stored.take(first).take(second)
    assert view.shape == (3, 3)
    np.testing.assert_array_equal(np.asarray(view), VALUES[first][second])
    np.testing.assert_array_equal(view[1:], VALUES[first][second][1:])
    assert len(stored) == 50


def test_numpy_reads_the_file_too(tmp_path):
    store_rows(tmp_path / "rows", [{"a": VALUES, "b": VALUES[:, :1] > 0}])
    np.testing.assert_array_equal(np.load(tmp_path / "rows" / "a.npy"), VALUES)
    assert np.load(tmp_path / "rows" / "b.npy").dtype == bool


def test_a_shortened_file_and_another_format_are_errors(tmp_path, stored):
    path = tmp_path / "rows" / "values.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError, match="ends before row 49"):
        StoredRows(path)[45:]
    np.save(tmp_path / "flat.npy", VALUES[0])
    with pytest.raises(ValueError, match="must have two dimensions"):
        StoredRows(tmp_path / "flat.npy")


def test_an_interrupted_write_leaves_no_folder(tmp_path):
    def blocks():
        yield {"values": VALUES}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store_rows(tmp_path / "rows", blocks())
    assert not list(tmp_path.iterdir())


def test_moments_and_fingerprints_equal_those_of_arrays(tmp_path):
    values = np.random.default_rng(0).normal(3.0, 2.0, size=(2500, 4)).astype(np.float32)
    stored = store_rows(tmp_path / "rows", [{"image": values, "text": values + 1}])
    rows, mean, mean_squared_norm = moments(stored["image"])
    assert (rows, mean.tolist(), mean_squared_norm) == tuple(
        value.tolist() if isinstance(value, np.ndarray) else value for value in moments(values)
    )
    np.testing.assert_allclose(mean, values.mean(axis=0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(mean_squared_norm, values.var(axis=0, dtype=np.float64).sum(), rtol=1e-12)
    order = np.random.default_rng(0).permutation(2500)
    in_memory, in_files = PairedData(values, values + 1), PairedData(**stored)
    assert in_files.take(order).fingerprint() == in_memory.take(order).fingerprint() != in_memory.fingerprint()
