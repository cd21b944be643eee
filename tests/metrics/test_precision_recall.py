"""The precision-recall curve by Hamming radius, worked out by hand."""

import numpy as np

from cmimh_tf.metrics import precision_recall_curve

# From the query 0: none at distance 0, a relevant and an irrelevant at 1, a relevant at 2, another at 8.
DATABASE = np.array([[0b1], [0b10], [0b11], [0b11111111]], np.uint8)
LABELS = np.array([[1, 0], [0, 1], [1, 0], [0, 1]])


def test_one_query_by_hand():
    curve = precision_recall_curve(np.zeros((1, 1), np.uint8), DATABASE, [[1, 0]], LABELS)
    assert curve.radius.tolist() == list(range(9))
    np.testing.assert_allclose(curve.precision, [np.nan, 1 / 2] + [2 / 3] * 6 + [2 / 4])
    np.testing.assert_allclose(curve.recall, [0, 1 / 2] + [1] * 7)
    np.testing.assert_allclose(curve.answered, [0] + [1] * 8)


def test_precision_averages_only_queries_that_found_something():
    # The second query meets the last item, which is irrelevant to it, at once: precision 0, and it counts.
    queries = np.array([[0b0], [0b11111111]], np.uint8)
    curve = precision_recall_curve(queries, DATABASE, [[1, 0], [1, 0]], LABELS)
    np.testing.assert_allclose(curve.precision[:2], [0, (1 / 2 + 0) / 2])
    np.testing.assert_allclose(curve.recall[:2], [0, (1 / 2 + 0) / 2])
    np.testing.assert_allclose(curve.answered[:2], [1 / 2, 1])


def test_recall_averages_only_queries_that_have_relevant_items():
    queries = np.zeros((2, 1), np.uint8)
    curve = precision_recall_curve(queries, DATABASE, [[1, 0], [0, 0]], LABELS)
    np.testing.assert_allclose(curve.recall, [0, 1 / 2] + [1] * 7)
    np.testing.assert_allclose(curve.precision[-1], (2 / 4 + 0) / 2)


def test_recall_is_undefined_when_nothing_is_relevant():
    curve = precision_recall_curve(np.zeros((1, 1), np.uint8), DATABASE, [[0, 0]], LABELS)
    assert np.isnan(curve.recall).all()
    np.testing.assert_allclose(curve.precision[1:], 0)


def test_ends_at_full_recall_and_chance():
    rng = np.random.default_rng(0)
    codes, labels = rng.integers(0, 256, (300, 2), np.uint8), rng.integers(0, 2, (300, 3))
    curve = precision_recall_curve(codes[:40], codes[40:], labels[:40], labels[40:])
    assert (np.diff(curve.recall) >= 0).all()
    assert curve.recall[-1] == 1
    np.testing.assert_allclose(curve.precision[-1], (labels[:40] @ labels[40:].T > 0).mean())
