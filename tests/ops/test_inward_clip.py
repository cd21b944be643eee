import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.ops.inward_clip import inward_clip


def test_values_are_clipped():
    np.testing.assert_allclose(inward_clip(tf.constant([-7.0, -5.0, 0.5, 5.0, 9.0]), 5.0), [-5.0, -5.0, 0.5, 5.0, 5.0])


@pytest.mark.parametrize(
    ("value", "upstream", "expected"),
    [
        (0.5, 2.0, 2.0),
        (0.5, -2.0, -2.0),
        (5.0, -2.0, -2.0),
        (7.0, 2.0, 2.0),  # a step down leads back inside
        (7.0, -2.0, 0.0),  # a step up leads further out
        (-7.0, -2.0, -2.0),
        (-7.0, 2.0, 0.0),
    ],
)
def test_gradient_beyond_the_limit_passes_only_inwards(value, upstream, expected):
    x = tf.constant([value])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(upstream * inward_clip(x, 5.0))
    np.testing.assert_allclose(tape.gradient(loss, x), [expected])


def test_descent_brings_a_value_back():
    x = tf.Variable([20.0, -20.0])
    for _ in range(200):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(inward_clip(x, 5.0) - 1.0))
        x.assign_sub(0.1 * tape.gradient(loss, x))
    np.testing.assert_allclose(x, [1.0, 1.0], atol=1e-3)
