"""FSH: its graph, discrete steps that never raise the objective, and codes of known clusters."""

from dataclasses import replace

import numpy as np
import pytest

from cmimh_tf.baselines.fsh import FSH, GraphCoding, anchor_view, fusion_similarity, graph_target
from cmimh_tf.codes import hamming_distance


@pytest.fixture
def problem():
    random = np.random.default_rng(0)
    views = random.standard_normal((40, 5)), random.standard_normal((40, 3))
    return GraphCoding(graph_target(random.random((40, 12)), 8), views, map_weight=0.5, ridge=0.1)


def test_target_is_centred_and_as_large_as_products_of_uncorrelated_codes():
    random = np.random.default_rng(0)
    target = graph_target(random.random((300, 200)), 16)
    np.testing.assert_allclose(target.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(target.mean(axis=1), 0, atol=1e-10)
    products = random.choice([-1.0, 1.0], (300, 16)) @ random.choice([-1.0, 1.0], (200, 16)).T
    assert (target**2).mean() == pytest.approx(16)
    assert (target**2).mean() == pytest.approx((products**2).mean(), rel=0.02)
    assert (graph_target(np.ones((4, 3)), 8) == 0).all()


def test_objective_never_rises_and_codes_stay_binary(problem):
    codes = problem.start(8, seed=1)
    values = [problem.objective(codes)]
    for _ in range(10):
        codes = problem.step(codes)
        values.append(problem.objective(codes))
    assert (np.diff(values) <= 1e-9 * values[0]).all()
    assert values[-1] < values[0]
    assert set(np.unique(codes.items)) == set(np.unique(codes.anchors)) == {-1.0, 1.0}


@pytest.mark.parametrize("name", ["items", "anchors"])
def test_at_the_end_no_single_flip_helps(problem, name):
    codes = problem.start(8, seed=1)
    for _ in range(50):
        codes = problem.step(codes)
    # The maps follow the items within a step; with them fixed, each bit is at its best.
    best = problem.objective(codes)
    for row in range(12):
        for bit in range(8):
            flipped = getattr(codes, name).copy()
            flipped[row, bit] *= -1
            assert problem.objective(replace(codes, **{name: flipped})) >= best - 1e-9


def test_clusters_get_codes_of_their_own():
    random = np.random.default_rng(0)
    assignment = np.arange(400) % 8
    image, text = (
        (3 * random.standard_normal((8, width)))[assignment] + 0.3 * random.standard_normal((400, width))
        for width in (20, 12)
    )
    hasher = FSH(16, num_anchors=100).fit(image[:300], text[:300])
    distances = hamming_distance(hasher.hash_images(image[300:]), hasher.hash_texts(text[300:]))
    same = assignment[300:, np.newaxis] == assignment[300:]
    assert distances[same].mean() < 1
    assert distances[~same].mean() > 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_anchors": 0}, r"`num_anchors` must be at least 1. Received: num_anchors=0"),
        ({"num_neighbours": 0}, r"`num_neighbours` must be at least 1. Received: num_neighbours=0"),
        ({"rounds": 0}, r"`rounds` must be at least 1. Received: rounds=0"),
        ({"map_weight": 0}, r"`map_weight` must be positive. Received: map_weight=0"),
        ({"ridge": 0}, r"`ridge` must be positive. Received: ridge=0"),
    ],
)
def test_wrong_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        FSH(8, **options)


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
