"""The dict of all measures: complete, JSON-ready, and equal to the single measures."""

import json

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.metrics import (
    TASKS,
    CodedItems,
    evaluate_retrieval,
    mean_average_precision,
    precision_at_k,
    precision_recall_curve,
    recall_one_at_k,
)


def random_items(num_items, seed, labels=True):
    rng = np.random.default_rng(seed)
    image_codes, text_codes = rng.integers(0, 256, (2, num_items, 2), np.uint8)
    return CodedItems(image_codes, text_codes, rng.integers(0, 2, (num_items, 3)) if labels else None)


QUERY, DATABASE = random_items(20, 0), random_items(150, 1)


def test_names_and_sizes():
    result = evaluate_retrieval(QUERY, DATABASE, seed=5)
    assert set(result) == {
        "num_queries", "num_database", "code_length", "tie_seed", "labels", "chance",
        "map", "map_at_50", "map_at_1000", "precision_at_k", "precision_recall",
        "recall_one_at_1", "recall_one_at_5", "recall_one_at_10",
    }  # fmt: skip
    sizes = [result[key] for key in ("num_queries", "num_database", "code_length", "tie_seed", "labels")]
    assert sizes == [20, 150, 16, 5, True]
    assert result["chance"] == (QUERY.labels @ DATABASE.labels.T > 0).mean()
    assert list(result["map"]) == list(TASKS)
    assert list(result["recall_one_at_1"]) == ["image_to_text", "text_to_image"]


def test_is_json():
    # At radius 0 no query finds anything, so that there is a precision which is undefined: null, not NaN.
    result = evaluate_retrieval(QUERY, DATABASE)
    assert result["precision_recall"]["image_to_text"]["precision"][0] is None
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@pytest.mark.parametrize("task", TASKS)
def test_equals_the_single_measures(task):
    source, target = task.split("_to_")
    arguments = QUERY.codes(source), DATABASE.codes(target), QUERY.labels, DATABASE.labels
    result = evaluate_retrieval(QUERY, DATABASE, map_at=[7], precision_at=[9, 2], recall_one_at=[4], seed=3)
    assert result["map_at_7"][task] == mean_average_precision(*arguments, k=7, seed=3)
    assert result["map"][task] == mean_average_precision(*arguments, seed=3)
    assert result["precision_at_k"]["k"] == [2, 9]
    assert result["precision_at_k"][task] == precision_at_k(*arguments, ks=[2, 9], seed=3).tolist()
    curve = precision_recall_curve(*arguments)
    assert result["precision_recall"]["radius"] == curve.radius.tolist()
    assert result["precision_recall"][task]["recall"] == curve.recall.tolist()
    assert result["precision_recall"][task]["answered"] == curve.answered.tolist()
    precision = np.array(result["precision_recall"][task]["precision"], float)
    np.testing.assert_array_equal(precision, curve.precision)
    if source != target:
        expected = recall_one_at_k(QUERY.codes(source), QUERY.codes(target), ks=[4], seed=3)[0]
        assert result["recall_one_at_4"][task] == expected


def test_tasks_are_told_apart():
    # Image codes tell the classes; text codes are all equal. Only image to image is perfect.
    classes = np.eye(8)[np.arange(80) % 8]
    items = CodedItems(pack_bits(classes), np.zeros((80, 1), np.uint8), classes)
    result = evaluate_retrieval(items, items)["map"]
    assert result["image_to_image"] == 1
    assert max(result[task] for task in TASKS if task != "image_to_image") < 0.5


def test_direction_is_query_to_database():
    # The query's image is at distance 0 of the relevant text, its text at distance 8 of the relevant image.
    query = CodedItems(np.array([[0]], np.uint8), np.array([[0]], np.uint8), np.array([[1]]))
    database = CodedItems(
        image_codes=np.array([[255], [0]], np.uint8),
        text_codes=np.array([[0], [255]], np.uint8),
        labels=np.array([[1], [0]]),
    )
    result = evaluate_retrieval(query, database, map_at=[1])["map_at_1"]
    assert result == {"image_to_text": 1.0, "text_to_image": 0.0, "image_to_image": 0.0, "text_to_text": 1.0}


def test_direction_of_recall_one_is_query_to_pair():
    # Both images are nearest to their own texts; the second text (0b1) is nearer to the first image (0b0).
    items = CodedItems(np.array([[0b0], [0b111]], np.uint8), np.array([[0b0], [0b1]], np.uint8))
    result = evaluate_retrieval(items, items, recall_one_at=[1])["recall_one_at_1"]
    assert result == {"image_to_text": 1.0, "text_to_image": 0.5}


def test_cutoffs_beyond_the_database_mean_all_of_it():
    result = evaluate_retrieval(QUERY, DATABASE, map_at=[1000], precision_at=[100, 500, 1000])
    assert result["map_at_1000"] == result["map"]
    assert result["precision_at_k"]["k"] == [100, 150]


def test_tie_seed_changes_the_figures_and_repeats_them():
    first, same, other = (evaluate_retrieval(QUERY, DATABASE, seed=seed) for seed in (0, 0, 1))
    assert first == same
    assert first["map_at_50"] != other["map_at_50"]
    assert first["precision_recall"] == other["precision_recall"]


def test_without_labels_only_recall_one_is_reported():
    query, database = random_items(20, 0, labels=False), random_items(150, 1, labels=False)
    result = evaluate_retrieval(query, database)
    assert result["labels"] is False
    assert set(result) == {
        "num_queries", "num_database", "code_length", "tie_seed", "labels",
        "recall_one_at_1", "recall_one_at_5", "recall_one_at_10",
    }  # fmt: skip
    assert result["recall_one_at_5"] == evaluate_retrieval(QUERY, DATABASE)["recall_one_at_5"]


CODES = np.zeros((3, 2), np.uint8)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: CodedItems(CODES, CODES[:2]), ValueError, "must have the same number of rows"),
        (
            lambda: CodedItems(CODES, CODES[:, :1]),
            ValueError,
            "`image_codes` and `text_codes` must have equal widths",
        ),
        (lambda: CodedItems(CODES[:0], CODES[:0]), ValueError, "`image_codes` must have at least one row"),
        (
            lambda: CodedItems(CODES, CODES.astype(int)),
            TypeError,
            "`text_codes` must be packed codes of type uint8",
        ),
        (
            lambda: CodedItems(CODES, CODES, np.full((3, 1), 2)),
            ValueError,
            r"`labels` must be 0 or 1. .*\[0, 0\]=2",
        ),
        (
            lambda: CodedItems(CODES, CODES, np.ones((2, 1))),
            ValueError,
            "`labels` must have one row for each code, 3",
        ),
        (
            lambda: evaluate_retrieval(QUERY, random_items(5, 0, labels=False)),
            ValueError,
            "`query` and `database` must both have labels, or neither. Received: database.labels=None.",
        ),
        (
            lambda: evaluate_retrieval(CodedItems(CODES[:, :1], CODES[:, :1]), CodedItems(CODES, CODES)),
            ValueError,
            "`query.image_codes` and `database.image_codes` must have equal widths",
        ),
        (lambda: evaluate_retrieval(CODES, DATABASE), TypeError, "`query` must be CodedItems. .* ndarray"),
        (
            lambda: evaluate_retrieval(QUERY, DATABASE, map_at=[0]),
            ValueError,
            r"`map_at\[0\]` must be a positive",
        ),
        (
            lambda: evaluate_retrieval(QUERY, DATABASE, precision_at=[-1]),
            ValueError,
            r"`precision_at\[0\]` must be",
        ),
        (
            lambda: evaluate_retrieval(QUERY, DATABASE, recall_one_at=[]),
            ValueError,
            "`recall_one_at` must hold",
        ),
        (
            lambda: evaluate_retrieval(QUERY, DATABASE, seed=None),
            TypeError,
            "`seed` must be a non-negative integer",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
