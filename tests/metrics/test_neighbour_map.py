"""Neighbour mAP: 1 for codes that follow the features, chance for codes that do not, and the same for the same seed."""

import numpy as np
import pytest

from cmimh_tf.codes import pack_bits
from cmimh_tf.metrics import neighbour_map as module
from cmimh_tf.metrics.evaluation import CodedItems
from cmimh_tf.metrics.neighbour_map import centred_cosines, estimate_quality, nearest, neighbour_count, neighbour_map
from cmimh_tf.stored_rows import open_rows, store_rows

NUM_QUERIES, NUM_DATABASE, NUM_CLUSTERS = 40, 400, 10


@pytest.fixture(scope="module")
def world():
    """Ten far clusters of 44 pairs: the 40 neighbours of a query are its cluster's 40 pairs in the database."""
    cluster = np.arange(NUM_QUERIES + NUM_DATABASE) % NUM_CLUSTERS
    centres = 10 * np.eye(NUM_CLUSTERS)[cluster]
    noise = np.random.default_rng(0).standard_normal((2, *centres.shape))
    return cluster, {"image": centres + 0.1 * noise[0], "text": centres[:, ::-1] + 0.1 * noise[1]}


def part(features, rows):
    return {name: values[rows] for name, values in features.items()}


def estimate(features, bits, text_bits=None, seed=0):
    codes, text_codes = pack_bits(bits), pack_bits(bits if text_bits is None else text_bits)
    query, database = slice(NUM_QUERIES), slice(NUM_QUERIES, None)
    return estimate_quality(
        CodedItems(codes[query], text_codes[query]),
        CodedItems(codes[database], text_codes[database]),
        part(features, query),
        part(features, database),
        seed=seed,
    )


def cluster_bits(cluster):
    return np.pad(np.eye(NUM_CLUSTERS, dtype=np.uint8)[cluster], ((0, 0), (0, 6)))


def test_codes_that_follow_the_features_score_one(world):
    cluster, features = world
    found = estimate(features, cluster_bits(cluster))
    assert found["neighbour_map"] == {"image_to_text": 1.0, "text_to_image": 1.0}
    assert found["neighbour_map_sample"] == {"queries": 40, "database": 400, "neighbours": 40}
    # A tenth of the pairs are relevant, and a random code of a cluster finds another cluster's pairs first.
    assert found["neighbour_map_chance"] == pytest.approx(0.2, abs=0.1)


def test_random_codes_score_chance(world):
    _, features = world
    bits = np.random.default_rng(1).integers(0, 2, (NUM_QUERIES + NUM_DATABASE, 16))
    found = estimate(features, bits, np.random.default_rng(2).integers(0, 2, bits.shape))
    assert np.mean(list(found["neighbour_map"].values())) == pytest.approx(found["neighbour_map_chance"], abs=0.02)


def test_codes_of_the_wrong_items_score_chance(world):
    cluster, features = world
    bits = cluster_bits(cluster)
    found = estimate(features, bits, np.random.default_rng(0).permutation(bits))
    assert max(found["neighbour_map"].values()) < 0.3


def test_relevance_is_by_hand():
    # Two of four pairs are relevant and are ranked 1st and 3rd: AP = (1/1 + 2/3) / 2.
    codes = pack_bits(np.array([[0] * 8, [1] + [0] * 7, [1] * 2 + [0] * 6, [1] * 3 + [0] * 5]))
    query = CodedItems(codes[:1], codes[:1])
    relevant = np.array([[True, False, True, False]])
    assert neighbour_map(query, CodedItems(codes, codes), relevant, "image_to_text") == pytest.approx(5 / 6)


def test_both_modalities_count_equally():
    # The image distinguishes the first two rows from the others, the text the first and third: together, the first.
    image = np.array([[1.0, 0], [1, 0.1], [-1, 0], [-1, 0.1]], np.float32)
    text = 100 * np.array([[0, 1.0], [0.1, -1], [0, 1], [0.1, -1]], np.float32)
    joint = centred_cosines(image[:1], image) + centred_cosines(text[:1], text)
    assert nearest(joint, 1).tolist() == [[True, False, False, False]]
    assert nearest(joint, 9).all()


def test_number_of_neighbours():
    assert [neighbour_count(size) for size in (1, 19, 20, 500, 5_000, 1_000_000)] == [1, 1, 2, 50, 100, 100]


def test_large_data_are_sampled_by_the_seed_and_may_be_in_files(world, tmp_path, monkeypatch):
    cluster, features = world
    monkeypatch.setattr(module, "MAX_QUERIES", 20)
    monkeypatch.setattr(module, "MAX_DATABASE", 100)
    noisy = cluster_bits(cluster) ^ (np.random.default_rng(0).random((len(cluster), 16)) < 0.15)
    found, again, other = (estimate(features, noisy, seed=seed) for seed in (0, 0, 1))
    assert found["neighbour_map_sample"] == {"queries": 20, "database": 100, "neighbours": 10}
    assert found == again
    assert found["neighbour_map"] != other["neighbour_map"]
    floats = {name: values.astype(np.float32) for name, values in features.items()}
    store_rows(tmp_path / "rows", [part(floats, slice(NUM_QUERIES)), part(floats, slice(NUM_QUERIES, None))])
    stored = open_rows(tmp_path / "rows")
    codes = pack_bits(noisy)
    rows = np.arange(len(cluster))
    split = [rows[:NUM_QUERIES], rows[NUM_QUERIES:]]
    in_files = [{name: values.take(some) for name, values in stored.items()} for some in split]
    items = [CodedItems(codes[some], codes[some]) for some in split]
    assert estimate_quality(*items, *in_files, seed=0) == found
