"""Iterative quantisation on data where the best rotation is known."""

import numpy as np
import pytest

from cmimh_tf.baselines.cca_itq import CCAITQ, iterative_quantisation
from cmimh_tf.baselines.rotated_variates import random_rotation


def quantisation_error(variates, rotation):
    rotated = variates @ rotation
    return ((np.where(rotated >= 0, 1, -1) - rotated) ** 2).sum()


@pytest.mark.parametrize("code_length", [8, 24])
def test_rotation_stays_orthogonal_and_each_round_lowers_the_error(code_length):
    variates = np.random.default_rng(0).standard_normal((300, 8))
    start = random_rotation(8, code_length, seed=1)
    errors = []
    for rounds in range(8):
        rotation = iterative_quantisation(variates, start, rounds=rounds)
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(8), atol=1e-10)
        errors.append(quantisation_error(variates, rotation))
    assert (np.diff(errors) < 1e-9).all()
    assert errors[-1] < errors[0]


def test_planted_rotation_is_recovered_up_to_order_and_signs():
    random = np.random.default_rng(0)
    codes = random.choice([-1.0, 1.0], (500, 4))
    planted = random_rotation(4, 4, seed=1)
    rotation = iterative_quantisation(codes @ planted, random_rotation(4, 4, seed=2), rounds=50)
    # The corners of a cube are turned onto themselves: planted @ rotation permutes and flips the axes.
    turned = np.abs(planted @ rotation)
    np.testing.assert_allclose(np.sort(turned, axis=0), [[0] * 4, [0] * 4, [0] * 4, [1] * 4], atol=1e-10)
    np.testing.assert_allclose(np.sort(turned, axis=1), [[0, 0, 0, 1]] * 4, atol=1e-10)


def test_negative_rounds_are_refused():
    with pytest.raises(ValueError, match=r"`rounds` must not be negative. Received: rounds=-1"):
        CCAITQ(8, rounds=-1)
