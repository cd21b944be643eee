"""Support vector machines with solutions that can be written down."""

import numpy as np
import pytest

from cmimh_tf.baselines.linear_svm import fit_linear_svms


@pytest.mark.parametrize("cost", [0.1, 1.0, 10.0])
def test_two_points_have_their_closed_form(cost):
    # w^2 / 2 + 2 C (1 - w)^2 is smallest at w = 4 C / (1 + 4 C); with the signs swapped, at minus that.
    weights = fit_linear_svms(
        np.array([[1.0], [-1.0]]), np.array([[1.0, -1], [-1, 1]]), cost=cost, start=np.zeros((1, 2))
    )
    expected = 4 * cost / (1 + 4 * cost)
    np.testing.assert_allclose(weights, [[expected, -expected]], rtol=1e-4)


def test_points_beyond_the_margin_have_no_say():
    features = np.array([[1.0], [-1.0], [50.0], [-80.0]])
    weights = fit_linear_svms(features, np.sign(features), cost=1.0, start=np.zeros((1, 1)))
    np.testing.assert_allclose(weights, [[4 / 5]], rtol=1e-4)


def test_gradient_vanishes_for_each_machine():
    random = np.random.default_rng(0)
    features = random.standard_normal((200, 6))
    signs = np.sign(features @ random.standard_normal((6, 3)) + random.standard_normal((200, 3)))
    weights = fit_linear_svms(features, signs, cost=0.5, start=np.zeros((6, 3)))
    violations = np.maximum(0, 1 - signs * (features @ weights))
    np.testing.assert_allclose(weights, features.T @ (signs * violations), atol=1e-2)
    # Solved together or alone, and from wherever it starts, a machine is the same.
    alone = fit_linear_svms(features, signs[:, 1:2], cost=0.5, start=np.ones((6, 1)))
    np.testing.assert_allclose(alone, weights[:, 1:2], atol=1e-3)
