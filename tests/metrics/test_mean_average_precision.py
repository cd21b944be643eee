"""mAP on rankings small enough to be worked out by hand."""

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.metrics import mean_average_precision

# The query 0 has distances 0, 1, 2, ... to these codes, which have as many ones: no ties.
LADDER = np.array([[(1 << ones) - 1] for ones in range(8)], np.uint8)
ZERO = np.zeros((1, 1), np.uint8)


def labels_of(relevance):
    """One class that the query has, and one that it has not."""
    return np.array([[hit, not hit] for hit in relevance], np.uint8)


QUERY_LABELS = labels_of([1])


@pytest.mark.parametrize(
    ("relevance", "k", "expected"),
    [
        ([1, 0, 1, 0], None, (1 / 1 + 2 / 3) / 2),
        ([1, 0, 1, 0], 2, 1.0),  # One relevant item within the first two: divided by 1, not by 2.
        ([1, 0, 1, 0], 3, (1 / 1 + 2 / 3) / 2),
        ([0, 0, 1, 1], None, (1 / 3 + 2 / 4) / 2),
        ([0, 0, 1, 1], 3, 1 / 3),
        ([0, 0, 1, 1], 2, 0.0),  # Nothing relevant within the first two.
        ([0, 0, 0, 0], None, 0.0),
        ([1, 1, 1, 1], None, 1.0),
        ([0, 1, 0, 1, 0, 1, 0, 1], None, 1 / 2),
        ([0, 1], 1000, 1 / 2),  # A cutoff beyond the database means all of it.
    ],
)
def test_one_query_by_hand(relevance, k, expected):
    value = mean_average_precision(ZERO, LADDER[: len(relevance)], QUERY_LABELS, labels_of(relevance), k=k)
    assert value == pytest.approx(expected, abs=1e-15)


def test_a_query_without_relevant_items_stays_in_the_mean():
    query_codes = np.zeros((2, 1), np.uint8)
    query_labels = np.array([[1, 0], [0, 0]], np.uint8)
    value = mean_average_precision(query_codes, LADDER[:4], query_labels, labels_of([1, 0, 1, 0]))
    assert value == pytest.approx((5 / 6 + 0) / 2)


def test_two_queries_by_hand():
    # From the query of seven ones the same ladder is walked down: relevance by rank is 0, 1, 1.
    query_codes = np.array([[0b0], [0b1111111]], np.uint8)
    database = np.array([[0b0], [0b1], [0b11]], np.uint8)
    labels = np.array([[1, 0], [1, 0], [0, 1]], np.uint8)
    value = mean_average_precision(query_codes, database, np.array([[1, 0], [1, 0]]), labels)
    assert value == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2)


def test_sharing_one_of_many_labels_is_enough():
    query_labels = np.array([[1, 1, 0, 0]])
    labels = np.array([[0, 1, 1, 1], [0, 0, 1, 1]])
    assert mean_average_precision(ZERO, LADDER[:2], query_labels, labels) == 1.0


def test_a_perfect_code_scores_one():
    classes = np.random.default_rng(0).integers(0, 8, 500)
    codes, labels = pack_bits(np.eye(8)[classes]), np.eye(8)[classes]
    for k in (None, 1, 10, 500):
        assert mean_average_precision(codes[:50], codes[50:], labels[:50], labels[50:], k=k) == 1.0


def test_random_codes_score_chance():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (3200, 4), np.uint8)
    labels = np.eye(4)[rng.integers(0, 4, 3200)]
    value = mean_average_precision(codes[:200], codes[200:], labels[:200], labels[200:])
    assert value == pytest.approx(0.25, abs=0.01)


def test_every_tie_order_lies_between_the_best_and_the_worst():
    # Ten items at distance 0, five relevant: best 1, worst with the five at ranks 6 to 10.
    relevance = [1, 0] * 5
    codes = np.zeros((10, 1), np.uint8)
    worst = np.mean([hit / (5 + hit) for hit in range(1, 6)])
    values = {
        seed: mean_average_precision(ZERO, codes, QUERY_LABELS, labels_of(relevance), seed=seed) for seed in range(20)
    }
    assert all(worst <= value <= 1 for value in values.values())
    assert len({round(value, 12) for value in values.values()}) > 5
    again = mean_average_precision(ZERO, codes, QUERY_LABELS, labels_of(relevance), seed=7)
    assert again == values[7]


@pytest.mark.parametrize(("k", "error"), [(0, ValueError), (-3, ValueError), (True, ValueError), (1.5, TypeError)])
def test_k_must_be_positive(k, error):
    with pytest.raises(error, match=f"`k` must be a positive integer. Received: k={k}."):
        mean_average_precision(ZERO, LADDER, QUERY_LABELS, labels_of([1] * 8), k=k)
