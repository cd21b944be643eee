"""Criteria: 1 for codes that say all, chance for codes that say nothing."""

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.data import PairedData
from cmimh_tf.metrics.evaluation import CodedItems
from tuner.criteria import (
    LABEL_FREE,
    LABEL_FREE_CRITERIA,
    VAL_MAP,
    feature_neighbours,
    measure_criteria,
    resolve_objective,
)

NUM_QUERIES, NUM_DATABASE = 30, 90


@pytest.fixture(scope="module")
def world():
    """Three far clusters; their number is the label, and a code of it is as good as a code can be."""
    generator = np.random.default_rng(0)
    cluster = np.arange(NUM_QUERIES + NUM_DATABASE) % 3
    features = 10 * np.eye(3)[cluster] + 0.1 * generator.standard_normal((len(cluster), 3))
    data = PairedData(features, features[:, ::-1], np.eye(3, dtype=np.uint8)[cluster])
    query = data.take(np.arange(NUM_QUERIES))
    database = data.take(np.arange(NUM_QUERIES, len(data)))
    return cluster, query, database, feature_neighbours(query, database)


def coded(bits, labels):
    return (
        CodedItems(pack_bits(bits[:NUM_QUERIES]), pack_bits(bits[:NUM_QUERIES]), labels[:NUM_QUERIES]),
        CodedItems(pack_bits(bits[NUM_QUERIES:]), pack_bits(bits[NUM_QUERIES:]), labels[NUM_QUERIES:]),
    )


def all_labels(query, database):
    return np.concatenate([query.labels, database.labels])


def test_neighbours_are_of_the_same_cluster(world):
    cluster, _, _, neighbours = world
    queries, rows = np.nonzero(neighbours.joint)
    assert (cluster[NUM_QUERIES + rows] == cluster[queries]).all()
    assert (neighbours.joint.sum(axis=1) == NUM_DATABASE // 10).all()
    # Twice as many candidates are taken in each space.
    assert (neighbours.mutual.sum(axis=1) <= 2 * (NUM_DATABASE // 10)).all()


def test_codes_of_the_cluster_beat_random_ones_in_everything_but_pairs(world):
    cluster, query, database, neighbours = world
    good_bits = np.tile(np.eye(3, dtype=np.uint8)[cluster], 8)
    random_bits = np.random.default_rng(1).integers(0, 2, good_bits.shape)
    labels = all_labels(query, database)
    good = measure_criteria(*coded(good_bits, labels), neighbours, seed=0)
    chance = measure_criteria(*coded(random_bits, labels), neighbours, seed=0)
    assert good[VAL_MAP] == 1.0
    assert good["similarity_correlation"] > 0.99
    assert abs(chance["similarity_correlation"]) < 0.1
    for name in ("neighbour_map", "mutual_neighbour_map", VAL_MAP):
        assert good[name] > chance[name] + 0.1


def test_pairs_that_find_each_other_score_one(world):
    _, query, database, neighbours = world
    numbers = np.arange(NUM_QUERIES + NUM_DATABASE)
    bits = (numbers[:, None] >> np.arange(8)) & 1
    criteria = measure_criteria(*coded(bits, all_labels(query, database)), neighbours, seed=0)
    assert (criteria["pair_score"], criteria["pair_recall"]) == (1.0, 1.0)


def test_constant_codes_correlate_with_nothing(world):
    _, query, database, neighbours = world
    bits = np.zeros((NUM_QUERIES + NUM_DATABASE, 8), np.uint8)
    criteria = measure_criteria(*coded(bits, all_labels(query, database)), neighbours, seed=0)
    assert criteria["similarity_correlation"] == 0.0
    assert all(np.isfinite(list(criteria.values())))


def test_without_labels_there_is_no_map(world):
    _, _, _, neighbours = world
    codes = pack_bits(np.random.default_rng(0).integers(0, 2, (NUM_QUERIES + NUM_DATABASE, 16)))
    query = CodedItems(codes[:NUM_QUERIES], codes[:NUM_QUERIES])
    database = CodedItems(codes[NUM_QUERIES:], codes[NUM_QUERIES:])
    assert set(measure_criteria(query, database, neighbours, seed=0)) == set(LABEL_FREE_CRITERIA)


def test_objectives_by_name():
    assert resolve_objective(None, has_labels=True) == VAL_MAP
    assert resolve_objective(None, has_labels=False) == LABEL_FREE
    assert resolve_objective("label_free", has_labels=True) == LABEL_FREE
    assert resolve_objective("pair_recall", has_labels=False) == "pair_recall"
    with pytest.raises(ValueError, match=r"must be label_free for data without labels"):
        resolve_objective("val_map", has_labels=False)
    with pytest.raises(ValueError, match=r"`objective` must be one of label_free, val_map, .*objective='map'"):
        resolve_objective("map", has_labels=True)
