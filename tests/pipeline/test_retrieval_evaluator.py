"""The blessed model as a baseline, when it cannot read the data any more."""

from types import SimpleNamespace

import pytest
import tensorflow as tf

from pipeline.components import retrieval_evaluator


@pytest.mark.parametrize(
    "error",
    [
        ValueError("12 numbers are wanted"),
        tf.errors.InvalidArgumentError(None, None, "12 numbers are wanted\n\t [[node assert]]"),
    ],
)
def test_a_blessed_model_of_other_data_is_no_baseline(error, tmp_path, monkeypatch):
    def hash_split(*_):
        raise error

    monkeypatch.setattr(retrieval_evaluator, "hash_split", hash_split)
    (tmp_path / "Format-Serving").mkdir()
    blessed, model = SimpleNamespace(id=1, uri=str(tmp_path)), SimpleNamespace(id=2)
    metrics, remarks = retrieval_evaluator._measure_baseline(blessed, model, {}, "", [], 0)
    assert metrics is None
    assert remarks == ["the blessed model could not be measured on these data (12 numbers are wanted)"]
