"""FSH: the graph's target, discrete steps that never raise the objective, and codes of known clusters."""

from dataclasses import replace

import numpy as np
import pytest

from cmimh_tf.baselines.fsh import FSH
from cmimh_tf.baselines.graph_coding import GraphCoding, graph_target
from cmimh_tf.ops.hamming import hamming_distance


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
