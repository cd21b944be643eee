"""The fused graph on items whose neighbours are known."""

import numpy as np
import pytest

from cmimh_tf.baselines.fusion_graph import anchor_view, fusion_similarity


def clusters(assignment, seed):
    """Points of three far-apart clusters, by cluster number."""
    centres = np.array([[0.0, 0], [100, 0], [0, 100]])
    return centres[assignment] + np.random.default_rng(seed).standard_normal((len(assignment), 2))


def test_neighbours_and_kernel_of_a_line():
    view = anchor_view(np.array([[0.0], [1.0], [4.0]]), np.array([0, 2]), num_neighbours=1)
    # The anchors are at 0 and 4; the point at 1 is nearer to the first.
    np.testing.assert_array_equal(view.item_neighbours, [[1, 0], [1, 0], [0, 1]])
    np.testing.assert_array_equal(view.anchor_neighbours, [[1, 0], [0, 1]])
    # Squared distances 0, 16, 16, 0 have the mean 8.
    np.testing.assert_allclose(view.kernel, [[1, np.exp(-1)], [np.exp(-1), 1]])


def test_rows_of_neighbours_sum_to_one():
    features = np.random.default_rng(0).standard_normal((30, 4))
    view = anchor_view(features, np.arange(10), num_neighbours=3)
    np.testing.assert_allclose(view.item_neighbours.sum(axis=1), 1)
    assert ((view.item_neighbours > 0).sum(axis=1) == 3).all()


def test_clusters_that_both_views_see_are_blocks():
    assignment = np.arange(30) % 3
    anchors = np.arange(12)
    graph = fusion_similarity(
        clusters(assignment, 0), clusters(assignment, 1), anchors, num_neighbours=2, image_weight=0.5
    )
    same = assignment[:, np.newaxis] == assignment[anchors]
    assert graph[same].min() > 0.9
    assert graph[~same].max() < 0.7


def test_entries_are_means_over_both_neighbourhoods():
    random = np.random.default_rng(0)
    image, text, anchors = random.standard_normal((9, 3)), random.standard_normal((9, 2)), np.array([1, 4, 5, 8])
    graph = fusion_similarity(image, text, anchors, num_neighbours=2, image_weight=1.0)
    image_view, text_view = anchor_view(image, anchors, 2), anchor_view(text, anchors, 2)
    item, anchor = 3, 2
    near_item = np.flatnonzero(image_view.item_neighbours[item])
    near_anchor = np.flatnonzero(text_view.anchor_neighbours[anchor])
    expected = np.mean([image_view.kernel[p, q] for p in near_item for q in near_anchor])
    assert graph[item, anchor] == pytest.approx(expected)


def test_views_trade_places_with_their_weights():
    random = np.random.default_rng(0)
    image, text = random.standard_normal((20, 3)), random.standard_normal((20, 2))
    options = {"anchors": np.arange(8), "num_neighbours": 2}
    np.testing.assert_allclose(
        fusion_similarity(image, text, image_weight=0.3, **options),
        fusion_similarity(text, image, image_weight=0.7, **options),
    )
