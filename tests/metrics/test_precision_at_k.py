"""The precision curve on a ranking worked out by hand."""

import numpy as np
import pytest

from cmimh_tf.metrics import precision_at_k

# Distances 0, 1, 2, 3 from the query 0: no ties. Relevance by rank is 1, 0, 1, 0.
DATABASE = np.array([[0b0], [0b1], [0b11], [0b111]], np.uint8)
LABELS = np.array([[1], [0], [1], [0]])


def test_by_hand_in_the_order_asked_for():
    values = precision_at_k(np.zeros((1, 1), np.uint8), DATABASE, [[1]], LABELS, ks=[3, 1, 2, 4])
    np.testing.assert_allclose(values, [2 / 3, 1, 1 / 2, 1 / 2])


def test_beyond_the_database_means_all_of_it():
    values = precision_at_k(np.zeros((1, 1), np.uint8), DATABASE, [[1]], LABELS, ks=[4, 100])
    np.testing.assert_allclose(values, [1 / 2, 1 / 2])


def test_queries_are_averaged():
    values = precision_at_k(np.array([[0b0], [0b111]], np.uint8), DATABASE, [[1], [1]], LABELS, ks=[1, 2])
    np.testing.assert_allclose(values, [(1 + 0) / 2, (1 / 2 + 1 / 2) / 2])


def test_ks_must_be_positive():
    with pytest.raises(ValueError, match=r"`ks\[1\]` must be a positive integer. Received: ks\[1\]=0."):
        precision_at_k(np.zeros((1, 1), np.uint8), DATABASE, [[1]], LABELS, ks=[1, 0])
