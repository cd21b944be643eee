import numpy as np
import tensorflow as tf

from cmimh_tf.ops.bernoulli import logistic_sample, sample_codes


def test_share_of_ones_is_the_sigmoid_of_the_logit():
    logits = tf.constant(np.tile([-2.0, 0.0, 1.0], (20_000, 1)), tf.float32)
    ones = tf.reduce_mean(sample_codes(logits, [1, 2]), axis=0)
    # Four standard errors of a share among 20,000.
    np.testing.assert_allclose(ones, tf.sigmoid([-2.0, 0.0, 1.0]), atol=4 * 0.5 / np.sqrt(20_000))


def test_samples_are_finite_and_depend_on_the_seed_alone():
    logits = tf.zeros([1000, 32])
    first, again, other = (logistic_sample(logits, seed).numpy() for seed in ([1, 2], [1, 2], [1, 3]))
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.99


def test_gradient_reaches_the_logits_as_if_codes_were_logits():
    logits = tf.constant([[0.3, -4.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        total = tf.reduce_sum(sample_codes(logits, [0, 0]) * [[2.0, 3.0]])
    np.testing.assert_array_equal(tape.gradient(total, logits), [[2.0, 3.0]])
