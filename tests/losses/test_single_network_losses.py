import math

import pytest
import tensorflow as tf

from cmimh_tf.losses.balance import balance_loss
from cmimh_tf.losses.reconstruction import reconstruction_loss
from cmimh_tf.losses.total_correlation import discriminator_loss, total_correlation


def test_reconstruction_sums_over_dimensions_and_averages_over_rows():
    features, reconstructed = tf.constant([[1.0, 2.0], [0.0, 0.0]]), tf.constant([[0.0, 0.0], [0.0, 3.0]])
    assert reconstruction_loss(features, reconstructed).numpy() == pytest.approx((1 + 4 + 9) / 2)
    assert reconstruction_loss(features, features).numpy() == 0.0


def test_balance_is_zero_at_a_half_and_half_a_bit_when_constant():
    assert balance_loss(tf.constant([[0.0, 0.5], [1.0, 0.5]])).numpy() == 0.0
    assert balance_loss(tf.ones([4, 6])).numpy() == pytest.approx(3.0)
    # Column means 0.2 and 0.9.
    assert balance_loss(tf.constant([[0.1, 0.9], [0.3, 0.9]])).numpy() == pytest.approx(0.3 + 0.4)


def test_total_correlation_is_the_mean_logit():
    assert total_correlation(tf.constant([[1.0], [-3.0]])).numpy() == -1.0


def test_discriminator_that_knows_nothing_has_log_two():
    assert discriminator_loss(tf.zeros([5, 1]), tf.zeros([5, 1])).numpy() == pytest.approx(math.log(2))


def test_discriminator_loss_falls_when_it_is_right():
    right = discriminator_loss(tf.constant([[4.0]]), tf.constant([[-4.0]])).numpy()
    wrong = discriminator_loss(tf.constant([[-4.0]]), tf.constant([[4.0]])).numpy()
    assert right == pytest.approx(math.log1p(math.exp(-4)), rel=1e-5)
    assert wrong == pytest.approx(math.log1p(math.exp(4)), rel=1e-5)
