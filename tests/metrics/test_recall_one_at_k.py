"""RecallOne@k by hand, with ties, and against a plain reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmimh_tf.codes import hamming_distance
from cmimh_tf.metrics import recall_one_at_k
from cmimh_tf.metrics.ranking import tie_order
from cmimh_tf.metrics.retrieval import pair_ranks


def test_by_hand():
    # Query 0 has its pair at distance 0. Query 1 has its pair 0b1 at 3, behind 0b111 at 1, before 0b0 at 4.
    # Query 2 has its pair 0b111 at 3, behind both others.
    queries = np.array([[0b0], [0b1111], [0b0]], np.uint8)
    pairs = np.array([[0b0], [0b1], [0b111]], np.uint8)
    assert pair_ranks(queries, pairs).tolist() == [0, 1, 2]
    np.testing.assert_allclose(recall_one_at_k(queries, pairs, ks=[3, 1, 2, 9]), [1, 1 / 3, 2 / 3, 1])


def test_equal_and_distinct_codes_of_both_modalities_score_one():
    codes = np.random.default_rng(0).permutation(256).astype(np.uint8)[:, None]
    assert recall_one_at_k(codes, codes, ks=[1])[0] == 1


def test_ties_are_shuffled_by_the_seed():
    # One code for all: each query has another rank, its place in the shuffle, so exactly k of N are found.
    codes = np.zeros((50, 2), np.uint8)
    for seed in (0, 1):
        np.testing.assert_array_equal(pair_ranks(codes, codes, seed=seed), np.argsort(tie_order(50, seed)))
        np.testing.assert_allclose(recall_one_at_k(codes, codes, ks=[1, 10], seed=seed), [1 / 50, 10 / 50])
    assert (pair_ranks(codes, codes, seed=0) != pair_ranks(codes, codes, seed=1)).any()


@settings(deadline=None)
@given(st.integers(1, 70), st.integers(1, 9), st.sampled_from([2, 256]), st.integers(0, 2**32 - 1))
def test_equals_the_reference(num_pairs, num_bytes, distinct_bytes, seed):
    rng = np.random.default_rng(seed)
    queries, pairs = rng.integers(0, distinct_bytes, (2, num_pairs, num_bytes), np.uint8)
    order = tie_order(num_pairs, seed)
    ranked = order[np.argsort(hamming_distance(queries, pairs[order]), axis=1, kind="stable")]
    expected = [row.tolist().index(query) for query, row in enumerate(ranked)]
    assert pair_ranks(queries, pairs, seed=seed).tolist() == expected


def test_pairs_must_match():
    codes = np.zeros((3, 2), np.uint8)
    with pytest.raises(ValueError, match=r"must have the same number of rows. .*\(3, 2\), .*\(2, 2\)"):
        recall_one_at_k(codes, codes[:2], ks=[1])
    with pytest.raises(ValueError, match="`query_codes` and `paired_codes` must have equal widths"):
        recall_one_at_k(codes, codes[:, :1], ks=[1])
    with pytest.raises(ValueError, match=r"`ks\[0\]` must be a positive integer. Received: ks\[0\]=0."):
        recall_one_at_k(codes, codes, ks=[0])
