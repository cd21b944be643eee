"""What ExampleGen writes: the splits of the library, in any order, with the position to sort by."""

import apache_beam as beam
import numpy as np
import pytest

from cmimh_tf.data import make_splits, make_synthetic, save_npz
from pipeline.components.pair_example_gen import write_examples
from pipeline.examples import read_raw, read_raw_rows
from pipeline.sources import DataError, open_source


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    data = make_synthetic(40, seed=3, image_dim=5, text_dim=4)
    save_npz(folder / "a.npz", data)
    write_examples(beam.Pipeline(), open_source(str(folder / "a.npz")), str(folder / "out"), 7, num_train=20)
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
        write_examples(beam.Pipeline(), open_source(str(tmp_path / "pairs.csv")), str(tmp_path / "out"), 0)
