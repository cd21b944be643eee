"""What ExampleGen writes: the splits of the library, in any order, with the position to sort by."""

import apache_beam as beam
import numpy as np
import pytest

from cmimh_tf.data import PairedData, make_splits, make_synthetic, save_npz
from cmimh_tf.data.records import DataError
from cmimh_tf.data.sources import open_records
from pipeline.components.example_gen import choose_splits, write_examples
from pipeline.examples import read_raw, read_raw_rows


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    data = make_synthetic(40, seed=3, image_dim=5, text_dim=4)
    save_npz(folder / "a.npz", data)
    write_examples(beam.Pipeline(), open_records(str(folder / "a.npz")), str(folder / "out"), 7, num_train=20)
    return data, str(folder / "out")


@pytest.mark.parametrize("split", ["train", "database", "query"])
def test_splits_are_those_of_the_library_in_their_order(written, split):
    data, uri = written
    expected = getattr(make_splits(40, 7, num_train=20), split)
    rows = sorted(read_raw(uri, split), key=lambda row: row["position"])
    assert [row["id"] for row in rows] == [str(row) for row in expected]
    np.testing.assert_array_equal([row["image"] for row in rows], data.image[expected])
    np.testing.assert_array_equal([row["labels"] for row in rows], data.labels[expected])


def test_rows_come_in_the_order_asked_for(written):
    _, uri = written
    assert [row["position"] for row in read_raw_rows(uri, "database", [3, 0, 9])] == [3, 0, 9]


def test_error_in_a_worker_names_the_record(tmp_path):
    (tmp_path / "pairs.csv").write_text("image,text\n" + "\n".join(f"{row}.png,words" for row in range(8)))
    with pytest.raises(DataError, match=r"pairs.csv, line 2: `image` must be a file that can be read"):
        write_examples(beam.Pipeline(), open_records(str(tmp_path / "pairs.csv")), str(tmp_path / "out"), 0)


def test_official_query_set_of_an_npz_is_kept(tmp_path):
    is_query = np.arange(10) % 5 == 0
    save_npz(tmp_path / "a.npz", PairedData(np.eye(10), np.eye(10), is_query=is_query))
    splits = choose_splits(open_records(str(tmp_path / "a.npz")).index(), 0, None, None)
    assert sorted(splits.query) == [0, 5]


def test_official_splits_may_be_cut_to_fewer_training_pairs_only(tmp_path):
    rows = np.arange(10)
    marked = PairedData(np.eye(10), np.eye(10), is_query=rows < 2, is_train=rows > 5)
    save_npz(tmp_path / "a.npz", marked)
    index = open_records(str(tmp_path / "a.npz")).index()
    assert index.splits is not None
    whole, cut = (choose_splits(index, 0, None, num_train) for num_train in (None, 3))
    assert sorted(whole.train) == [6, 7, 8, 9]
    assert cut.train.tolist() == whole.train[:3].tolist()
    assert sorted(cut.database) == sorted(whole.database)
    with pytest.raises(DataError, match=r"`queries` must not be given with official splits. Received: 1."):
        choose_splits(index, 0, 1, None)
    with pytest.raises(DataError, match=r"`train_pairs` must be in 1..4 \(the official training set\). Received: 5."):
        choose_splits(index, 0, None, 5)


def test_too_few_pairs_to_split_are_refused(tmp_path):
    save_npz(tmp_path / "a.npz", PairedData(np.eye(4), np.eye(4)))
    with pytest.raises(DataError, match=r"a split would be empty"):
        choose_splits(open_records(str(tmp_path / "a.npz")).index(), 0, None, None)
