import numpy as np
import pytest

from cmimh_tf.config import NeighbourhoodConfig
from cmimh_tf.stored_rows import StoredRows, store_rows
from cmimh_tf.training import neighbourhood
from cmimh_tf.training.neighbourhood import (
    JointVectors,
    exact_neighbours,
    find_neighbourhood,
    indexed_neighbours,
    nearest_pairs,
    neighbourhood_targets,
)


@pytest.fixture
def clusters():
    """Three clusters of 20 pairs, far apart in both modalities."""
    generator = np.random.default_rng(0)
    label = np.repeat(np.arange(3), 20)
    image = np.eye(3)[label] @ generator.normal(size=(3, 8)) * 10 + generator.normal(size=(60, 8))
    text = np.eye(3)[label] @ generator.normal(size=(3, 5)) * 10 + generator.normal(size=(60, 5))
    return image.astype(np.float32), text.astype(np.float32), label


def test_neighbours_are_of_the_same_cluster_and_never_oneself(clusters):
    image, text, label = clusters
    rows = nearest_pairs(image, text, 10, 0.5)
    assert (label[rows] == label[:, None]).all()
    assert (rows != np.arange(60)[:, None]).all()
    assert all(len(set(row)) == 10 for row in rows.tolist())


def test_equal_to_the_naive_definition(clusters, monkeypatch):
    image, text, _ = clusters

    def z_cosine(features):
        centred = features - features.mean(axis=0)
        unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        cosine = unit @ unit.T
        return cosine / cosine.std()

    similarity = 0.3 * z_cosine(image) + 0.7 * z_cosine(text)
    np.fill_diagonal(similarity, -np.inf)
    expected = np.argsort(-similarity, axis=1)[:, :5]
    monkeypatch.setattr(neighbourhood, "BLOCK_ROWS", 7)
    np.testing.assert_array_equal(nearest_pairs(image, text, 5, 0.7), expected)


@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_scale_of_the_features_does_not_matter(clusters, factor):
    image, text, _ = clusters
    np.testing.assert_array_equal(nearest_pairs(image * factor, text, 5, 0.5), nearest_pairs(image, text, 5, 0.5))


def test_targets_by_hand():
    features = np.array([[0.0], [2.0], [4.0], [-6.0]], np.float32)
    rows = np.array([[1], [2], [1], [0]])
    # The mean is 0; half own, half neighbour: 1, 3, 3, -3, then stretched from a spread of sqrt(7) to sqrt(14).
    expected = np.array([[1.0], [3.0], [3.0], [-3.0]]) * np.sqrt(2)
    np.testing.assert_allclose(neighbourhood_targets(features, rows, 0.5), expected, rtol=1e-6)
    np.testing.assert_allclose(neighbourhood_targets(features, rows, 1.0), features, atol=1e-6)


def test_switched_off_or_alone():
    features = np.ones((1, 3), np.float32)
    assert find_neighbourhood(features, features, NeighbourhoodConfig()) == {}
    many = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    assert find_neighbourhood(many, many, NeighbourhoodConfig(neighbours=0)) == {}
    # More neighbours than there are others: all of them.
    targets = find_neighbourhood(many, many, NeighbourhoodConfig(neighbours=20, own_share=0.0))["image_target"]
    centred = many - many.mean(axis=0)
    np.testing.assert_allclose(targets - many.mean(axis=0), -centred, atol=1e-5)


@pytest.fixture(scope="module")
def many():
    """3,000 pairs that vary in 30 directions, and noise."""
    generator = np.random.default_rng(0)
    factors = generator.normal(size=(3000, 30))
    noise = [0.3 * generator.normal(size=(3000, units)) for units in (300, 60)]
    image = np.tanh(factors @ generator.normal(size=(30, 300)) / 5) + noise[0]
    text = np.tanh(factors @ generator.normal(size=(30, 60)) / 5) + noise[1]
    return image.astype(np.float32), text.astype(np.float32)


def recall(found, expected):
    return np.mean([len(set(one) & set(other)) / len(other) for one, other in zip(found, expected, strict=True)])


def test_the_index_finds_most_of_the_exact_neighbours(many, monkeypatch):
    joint = JointVectors(*many, 0.6)
    expected = exact_neighbours(joint, 20)
    found = indexed_neighbours(joint, 20)
    assert recall(found, expected) > 0.95
    assert (found != np.arange(3000)[:, None]).all()
    assert all(len(set(row)) == 20 for row in found.tolist())
    # Nearest first, by the full vectors.
    similarity = np.einsum("nd,nkd->nk", joint[:50], joint[found[:50].ravel()].reshape(50, 20, -1))
    assert (np.diff(similarity, axis=1) <= 1e-4).all()
    np.testing.assert_array_equal(indexed_neighbours(joint, 20), found)
    monkeypatch.setattr(neighbourhood, "_PROBED_LISTS", 1)
    assert recall(indexed_neighbours(joint, 20), expected) < 0.9


@pytest.mark.parametrize("exact_pairs", [50_000, 100])
def test_targets_of_stored_rows_equal_those_of_arrays(many, exact_pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(neighbourhood, "EXACT_PAIRS", exact_pairs)
    image, text = many
    stored = store_rows(tmp_path / "vectors", [{"image": image, "text": text}])
    expected = find_neighbourhood(image, text, NeighbourhoodConfig())
    found = find_neighbourhood(stored["image"], stored["text"], NeighbourhoodConfig(), tmp_path / "kept")
    for name in ("image_target", "text_target"):
        assert isinstance(found[name], StoredRows)
        np.testing.assert_array_equal(np.asarray(found[name]), expected[name])
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == sorted(
        ["targets"] + (["neighbours.npy"] if exact_pairs == 100 else [])
    )
    for name, values in find_neighbourhood(stored["image"], stored["text"], NeighbourhoodConfig()).items():
        np.testing.assert_array_equal(np.asarray(values), expected[name])
    # The next call reads what was kept.
    monkeypatch.setattr(neighbourhood, "nearest_pairs", None)
    again = find_neighbourhood(stored["image"], stored["text"], NeighbourhoodConfig(), tmp_path / "kept")
    np.testing.assert_array_equal(again["text_target"][:9], expected["text_target"][:9])


def test_neighbours_of_many_pairs_in_memory_are_kept(many, tmp_path, monkeypatch):
    monkeypatch.setattr(neighbourhood, "EXACT_PAIRS", 100)
    expected = find_neighbourhood(*many, NeighbourhoodConfig(), tmp_path)
    monkeypatch.setattr(neighbourhood, "nearest_pairs", None)
    found = find_neighbourhood(*many, NeighbourhoodConfig(), tmp_path)
    np.testing.assert_array_equal(found["image_target"], expected["image_target"])
