"""The neighbours that are shown are those that the measures rank first."""

import numpy as np
import pytest

from cmimh_tf.metrics import ranked_neighbours
from cmimh_tf.metrics.ranking import rank_database, tie_order


def test_by_hand():
    queries = np.array([[0b0], [0b111]], np.uint8)
    database = np.array([[0b11], [0b0], [0b1]], np.uint8)
    indices, distances = ranked_neighbours(queries, database, 2)
    assert indices.tolist() == [[1, 2], [0, 2]]
    assert distances.tolist() == [[0, 1], [1, 2]]


def test_ties_are_in_the_seeded_order():
    codes = np.zeros((20, 1), np.uint8)
    for seed in (0, 1):
        indices, _ = ranked_neighbours(codes[:1], codes, 20, seed)
        np.testing.assert_array_equal(indices[0], tie_order(20, seed))


def test_same_order_as_the_measures():
    # Five distinct codes: many ties. The relevant among the shown must be the hits that the measures count.
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (5, 4), np.uint8)[rng.integers(0, 5, 240)]
    labels = rng.integers(0, 2, (240, 2))
    ks = [1, 3, 10, 50]
    indices, _ = ranked_neighbours(codes[:40], codes[40:], 50, seed=2)
    relevant = (labels[:40, None] * labels[40:][indices]).any(-1)
    ranking = rank_database(codes[:40], codes[40:], labels[:40], labels[40:], cutoffs=ks, seed=2)
    np.testing.assert_array_equal(ranking.hits, np.cumsum(relevant, axis=1)[:, [k - 1 for k in ks]])


def test_no_more_than_there_are():
    codes = np.zeros((3, 1), np.uint8)
    indices, distances = ranked_neighbours(codes, codes, 10)
    assert indices.shape == distances.shape == (3, 3)


def test_k_must_be_positive():
    codes = np.zeros((3, 1), np.uint8)
    with pytest.raises(ValueError, match=r"`k` must be a positive integer\. Received: k=0\."):
        ranked_neighbours(codes, codes, 0)
