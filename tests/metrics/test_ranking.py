"""The ranking against a plain reference, and what the tie order and the number of threads may change."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmimh_tf.codes import unpack_codes
from cmimh_tf.metrics.ranking import rank_database, tie_order


def naive_ranking(query_codes, database_codes, query_labels, database_labels, cutoffs, seed):
    """The definitions, one query and one item at a time."""
    order = np.random.default_rng(seed).permutation(len(database_codes))
    database_bits = unpack_codes(database_codes)
    average_precision, hits, retrieved, relevant_counts = [], [], [], []
    for bits, labels in zip(unpack_codes(query_codes), query_labels, strict=True):
        distance = (bits != database_bits).sum(axis=1)
        relevant = np.array([any(a and b for a, b in zip(labels, row, strict=True)) for row in database_labels])
        ranked = relevant[order][np.argsort(distance[order], kind="stable")]
        precisions = [ranked[: rank + 1].mean() for rank in range(len(ranked))]
        found = [[p for p, hit in zip(precisions[:k], ranked[:k], strict=True) if hit] for k in cutoffs]
        average_precision.append([np.mean(values) if values else 0.0 for values in found])
        hits.append([len(values) for values in found])
        distances = range(len(bits) + 1)
        retrieved.append([(distance == d).sum() for d in distances])
        relevant_counts.append([(relevant & (distance == d)).sum() for d in distances])
    return average_precision, hits, retrieved, relevant_counts


def random_items(rng, num_items, num_bytes, num_classes, distinct=None):
    """Codes, drawn from `distinct` different ones if given, and labels of which some rows are all 0."""
    pool = rng.integers(0, 256, (distinct or num_items, num_bytes), np.uint8)
    codes = pool[rng.integers(0, len(pool), num_items)] if distinct else pool
    return codes, (rng.random((num_items, num_classes)) < rng.choice([0.02, 0.2, 0.6])).astype(np.uint8)


def assert_equals_reference(queries, database, cutoffs, seed):
    ranking = rank_database(queries[0], database[0], queries[1], database[1], cutoffs=cutoffs, seed=seed)
    assert ranking.cutoffs.tolist() == sorted({min(k, len(database[0])) for k in cutoffs})
    average_precision, hits, retrieved, relevant = naive_ranking(
        queries[0], database[0], queries[1], database[1], ranking.cutoffs, seed
    )
    np.testing.assert_allclose(ranking.average_precision, average_precision, rtol=1e-12)
    np.testing.assert_array_equal(ranking.hits, hits)
    np.testing.assert_array_equal(ranking.retrieved, retrieved)
    np.testing.assert_array_equal(ranking.relevant, relevant)


@settings(deadline=None, max_examples=150)
@given(
    num_queries=st.integers(1, 4),
    num_database=st.integers(1, 40),
    num_bytes=st.integers(1, 9),
    num_classes=st.sampled_from([1, 3, 24, 32, 33, 70]),
    distinct=st.sampled_from([None, 1, 2, 5]),
    cutoffs=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_the_reference(num_queries, num_database, num_bytes, num_classes, distinct, cutoffs, seed):
    rng = np.random.default_rng(seed)
    queries = random_items(rng, num_queries, num_bytes, num_classes, distinct)
    database = random_items(rng, num_database, num_bytes, num_classes, distinct)
    assert_equals_reference(queries, database, cutoffs, seed)


@pytest.mark.parametrize("cutoffs", [[50, 1000], [7, 4500, 10_000]])
def test_equals_the_reference_over_several_blocks(cutoffs):
    # More queries than a thread takes at once; more items than are keyed at once, and not a multiple of 4.
    rng = np.random.default_rng(1)
    assert_equals_reference(random_items(rng, 35, 6, 4), random_items(rng, 4502, 6, 4), cutoffs, seed=3)


def test_threads_change_nothing():
    rng = np.random.default_rng(0)
    queries, database = random_items(rng, 150, 4, 5), random_items(rng, 300, 4, 5)
    one, three = (
        rank_database(queries[0], database[0], queries[1], database[1], cutoffs=[10, 300], seed=0, num_threads=threads)
        for threads in (1, 3)
    )
    for name in ("average_precision", "hits", "retrieved", "relevant"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))


def test_ties_follow_the_seeded_order():
    # All at distance 0, one relevant: its rank is its place in the shuffle, so AP is 1 / (place + 1).
    codes, labels = np.zeros((10, 1), np.uint8), np.eye(10, dtype=np.uint8)
    for seed in range(5):
        ranking = rank_database(codes, codes, labels, labels, cutoffs=[10], seed=seed)
        places = np.argsort(tie_order(10, seed))
        np.testing.assert_allclose(ranking.average_precision[:, 0], 1 / (places + 1))


def test_order_of_the_database_does_not_decide_ties():
    # Sorted by class and all codes equal: about half of the top 100 are of the first class, not all of them.
    codes, classes = np.zeros((200, 1), np.uint8), np.repeat(np.eye(2, dtype=np.uint8), 100, axis=0)
    ranking = rank_database(codes[:1], codes, classes[:1], classes, cutoffs=[100], seed=0)
    assert 35 <= ranking.hits[0, 0] <= 65


def test_a_cutoff_that_was_not_asked_for_is_refused():
    codes, labels = np.zeros((10, 1), np.uint8), np.ones((10, 1), np.uint8)
    ranking = rank_database(codes, codes, labels, labels, cutoffs=[3, 99], seed=0)
    assert [ranking.column(3), ranking.column(10), ranking.column(11)] == [0, 1, 1]
    with pytest.raises(ValueError, match=r"must be one of the ranking's cutoffs, \[3, 10\]. Received: k=4."):
        ranking.column(4)


CODES, LABELS = np.zeros((3, 4), np.uint8), np.ones((3, 2), np.uint8)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"query_codes": CODES.astype(np.int32)}, TypeError, "`query_codes` must be .*dtype=int32"),
        ({"database_codes": CODES[0]}, ValueError, r"`database_codes` must have shape .*\(4,\)"),
        ({"query_codes": CODES[:, :2]}, ValueError, r"must have equal widths. .*\(3, 2\), .*\(3, 4\)"),
        ({"query_codes": CODES[:0]}, ValueError, r"`query_codes` must have at least one row"),
        ({"database_codes": CODES[:0]}, ValueError, "`database_codes` must have at least one row"),
        ({"query_codes": np.zeros((1, 5000), np.uint8), "database_codes": np.zeros((1, 5000), np.uint8)},
         ValueError, "`query_codes` must have at most 32760 bits. Received: 40000 bits."),
        ({"query_labels": LABELS[:2]}, ValueError, "`query_labels` must have one row for each code, 3"),
        ({"query_labels": LABELS[:, 0]}, ValueError, r"`query_labels` must have shape \[N, C\]"),
        ({"database_labels": LABELS[:, :0]}, ValueError, r"`database_labels` must have shape \[N, C\]"),
        ({"database_labels": LABELS[:, :1]}, ValueError, r"must have the same classes.*\(3, 2\), .*\(3, 1\)"),
        ({"database_labels": LABELS * 2}, ValueError, r"`database_labels` must be 0 or 1. .*\[0, 0\]=2"),
        ({"query_labels": np.array([[0, 1], [1, np.nan], [0, 0]])}, ValueError, r"query_labels\[1, 1\]=nan"),
        ({"query_labels": LABELS.astype(str)}, TypeError, "`query_labels` must be 0/1 numbers"),
        ({"cutoffs": [5, 0]}, ValueError, r"`cutoffs\[1\]` must be .* Received: cutoffs\[1\]=0"),
        ({"cutoffs": [-1]}, ValueError, "must be a positive integer"),
        ({"cutoffs": [2.5]}, TypeError, "must be a positive integer"),
        ({"cutoffs": []}, ValueError, "`cutoffs` must hold at least one"),
        ({"cutoffs": 5}, TypeError, "`cutoffs` must be a sequence of positive integers. Received: cutoffs=5"),
        ({"seed": -1}, ValueError, "`seed` must be a non-negative integer. Received: seed=-1"),
        ({"seed": None}, TypeError, "`seed` must be a non-negative integer. Received: seed=None"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(changed, error, message):
    arguments = {
        "query_codes": CODES,
        "database_codes": CODES,
        "query_labels": LABELS,
        "database_labels": LABELS,
        "cutoffs": [1],
        "seed": 0,
    }
    with pytest.raises(error, match=message):
        rank_database(**(arguments | changed))


def test_importing_the_measures_imports_no_compiler():
    program = "import sys, cmimh_tf.metrics; print({'numba', 'tensorflow', 'keras'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
