"""Records of vectors become `PairedData`."""

import json

import numpy as np
import pytest

from cmimh_tf.data.pairs import DataError, PairedData
from cmimh_tf.data.records import load_vectors
from cmimh_tf.data.sources import open_records


def write_lines(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


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
