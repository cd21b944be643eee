import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.ops.straight_through import straight_through_step


@pytest.mark.parametrize(("z", "expected"), [(-3.0, 0.0), (-1e-6, 0.0), (0.0, 1.0), (1e-6, 1.0), (3.0, 1.0)])
def test_step_is_zero_or_one_with_zero_counting_as_one(z, expected):
    assert straight_through_step(tf.constant(z)).numpy() == expected


def test_gradient_passes_unchanged():
    z = tf.constant([-2.0, 0.0, 5.0])
    upstream = tf.constant([0.5, -3.0, 7.0])
    with tf.GradientTape() as tape:
        tape.watch(z)
        total = tf.reduce_sum(straight_through_step(z) * upstream)
    np.testing.assert_array_equal(tape.gradient(total, z), upstream)


def test_works_in_a_compiled_graph():
    step = tf.function(straight_through_step, jit_compile=True)
    np.testing.assert_array_equal(step(tf.constant([-1.0, 1.0])), [0.0, 1.0])
