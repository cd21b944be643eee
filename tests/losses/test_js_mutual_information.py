import math

import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.losses.js_mutual_information import js_mutual_information, js_mutual_information_from_pairs


def softplus(x):
    return math.log1p(math.exp(x))


def test_a_critic_that_knows_nothing_gives_zero():
    assert js_mutual_information(tf.zeros([8, 8])).numpy() == pytest.approx(0.0, abs=1e-6)
    assert js_mutual_information_from_pairs(tf.zeros([8]), tf.zeros([8])).numpy() == pytest.approx(0.0, abs=1e-6)


def test_a_perfect_critic_gives_two_log_two():
    scores = 100.0 * tf.eye(8) - 50.0
    assert js_mutual_information(scores).numpy() == pytest.approx(2 * math.log(2), rel=1e-5)


def test_literal_two_by_two():
    # Joint: 1 and 4; marginal: 2 and 3.
    expected = 2 * math.log(2) - (softplus(-1) + softplus(-4)) / 2 - (softplus(2) + softplus(3)) / 2
    assert js_mutual_information(tf.constant([[1.0, 2.0], [3.0, 4.0]])).numpy() == pytest.approx(expected, rel=1e-5)


def test_pairs_equal_the_matrix_when_the_marginals_are_the_same():
    scores = tf.constant([[1.0, -2.0], [0.5, 3.0]])
    pairs = js_mutual_information_from_pairs(tf.constant([1.0, 3.0]), tf.constant([-2.0, 0.5]))
    assert js_mutual_information(scores).numpy() == pytest.approx(pairs.numpy(), rel=1e-5)


def test_large_scores_stay_finite():
    assert np.isfinite(js_mutual_information(tf.constant([[1e4, 1e4], [-1e4, -1e4]])).numpy())
