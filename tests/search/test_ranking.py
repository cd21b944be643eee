"""Scores and orders, on values derived by hand."""

import numpy as np

from cmimh_tf.codes import pack_bits
from cmimh_tf.search.ranking import (
    Ranked,
    asymmetric_scores,
    by_score,
    feature_scores,
    hamming_scores,
    merge_sides,
    num_candidates,
    real_valued_codes,
)


def ranked(rows, distances, side=0, scores=None):
    rows, distances = np.array(rows), np.array(distances, np.int32)
    scores = hamming_scores(distances, 8) if scores is None else np.array(scores, np.float32)
    return Ranked(rows, distances, scores, np.full(rows.shape, side, np.uint8))


def test_asymmetric_score_weighs_bits_by_the_query_s_certainty():
    logits = np.array([[4.0, -0.5, 0, 0, 0, 0, 0, 0]])
    bits = np.zeros((1, 4, 8), int)
    bits[0, 1, 0] = bits[0, 2, 1] = 1  # the sure bit agrees; the unsure bit differs
    bits[0, 3, :2] = 1
    codes = pack_bits(bits[0])[np.newaxis]
    expected = [(-4 + 0.5) / 4.5, (4 + 0.5) / 4.5, (-4 - 0.5) / 4.5, (4 - 0.5) / 4.5]
    assert np.allclose(asymmetric_scores(logits, codes)[0], expected)


def test_asymmetric_score_with_equal_certainty_is_the_hamming_score():
    random = np.random.default_rng(0)
    bits = random.integers(0, 2, (20, 16))
    query = bits[0]
    scores = asymmetric_scores(np.where(query, 3.0, -3.0)[np.newaxis], pack_bits(bits)[np.newaxis])
    assert np.allclose(scores[0], hamming_scores((bits != query).sum(axis=1), 16))
    assert scores[0, 0] == 1


def test_asymmetric_score_of_undecided_queries_is_zero():
    assert asymmetric_scores(np.zeros((1, 8)), np.array([[[7], [255]]], np.uint8)).tolist() == [[0, 0]]


def test_feature_score_is_the_cosine_of_real_valued_codes():
    logits = np.array([[2.0, -1.0, 0.5, 3.0, -2.0, 1.0, 1.0, -1.0]])
    features = np.stack([real_valued_codes(logits[0]), -real_valued_codes(logits[0])])[np.newaxis]
    assert np.allclose(feature_scores(logits, features), [[1, -1]], atol=1e-3)
    assert np.allclose(real_valued_codes(np.array([0.0, np.log(3)])), [0, 0.5], atol=1e-3)


def test_by_score_keeps_the_order_of_equal_scores_and_puts_missing_ones_last():
    given = ranked([[4, 5, 6, -1, 7]], [[0, 1, 1, -1, 2]], scores=[[0.1, 0.9, 0.9, 5.0, 0.95]])
    assert by_score(given).rows.tolist() == [[7, 5, 6, 4, -1]]


def test_both_sides_give_an_item_once():
    images, texts = ranked([[1, 2, 3]], [[1, 2, 3]]), ranked([[2, 1, 9]], [[1, 1, 3]], side=1)
    merged = merge_sides(images, texts, reranked=False).first(10)
    assert merged.rows.tolist() == [[1, 2, 3, 9]]
    assert merged.sides.tolist() == [[0, 1, 0, 1]]
    assert merged.distances.tolist() == [[1, 1, 3, 3]]
    assert merge_sides(images, texts, reranked=False).first(2).rows.tolist() == [[1, 2]]


def test_first_drops_columns_without_results():
    given = ranked([[4, 5, -1], [6, -1, -1]], [[0, 1, -1], [1, -1, -1]])
    assert given.first(None).rows.tolist() == [[4, 5], [6, -1]]
    assert given.first(1).rows.tolist() == [[4], [6]]
    assert given.without(np.array([4, 9])).rows.tolist() == [[5, -1, -1], [6, -1, -1]]
    stacked = Ranked.stacked([given.first(1), given.first(2)])
    assert stacked.rows.tolist() == [[4, -1], [6, -1], [4, 5], [6, -1]]


def test_candidates_are_a_few_times_more_than_results():
    assert (num_candidates(10), num_candidates(1000), num_candidates(None)) == (100, 4000, None)
