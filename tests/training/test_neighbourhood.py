import numpy as np
import pytest

from cmimh_tf.config import NeighbourhoodConfig
from cmimh_tf.training import neighbourhood
from cmimh_tf.training.neighbourhood import find_neighbourhood, nearest_pairs, neighbourhood_targets


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
    monkeypatch.setattr(neighbourhood, "_BLOCK_ROWS", 7)
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
    assert find_neighbourhood(features, features, NeighbourhoodConfig()) is None
    many = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    assert find_neighbourhood(many, many, NeighbourhoodConfig(neighbours=0)) is None
    # More neighbours than there are others: all of them.
    targets = find_neighbourhood(many, many, NeighbourhoodConfig(neighbours=20, own_share=0.0)).image_targets
    centred = many - many.mean(axis=0)
    np.testing.assert_allclose(targets - many.mean(axis=0), -centred, atol=1e-5)
