import numpy as np
import pytest
import tensorflow as tf

from cmimh_tf.ops import inward_clip, logistic_sample, sample_codes, shuffle_bits, straight_through_step, uniform_noise


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


def test_share_of_ones_is_the_sigmoid_of_the_logit():
    logits = tf.constant(np.tile([-2.0, 0.0, 1.0], (20_000, 1)), tf.float32)
    ones = tf.reduce_mean(sample_codes(logits, [1, 2]), axis=0)
    # Four standard errors of a share among 20,000.
    np.testing.assert_allclose(ones, tf.sigmoid([-2.0, 0.0, 1.0]), atol=4 * 0.5 / np.sqrt(20_000))


@pytest.mark.parametrize("units", [1, 3, 4, 1001])
def test_noise_is_uniform_between_its_limits_and_depends_on_the_seed_alone(units):
    values = tf.zeros([40_000 // units, units])
    first, again, other = (uniform_noise(values, tf.constant(2.0), seed).numpy() for seed in ([1, 2], [1, 2], [1, 3]))
    assert first.shape == values.shape
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.98
    levels, counts = np.unique(first, return_counts=True)
    np.testing.assert_allclose(levels, np.linspace(-2, 2, 256), atol=1e-6)
    # Chi-squared with 255 degrees of freedom: mean 255, deviation 22.6.
    assert np.sum((counts - first.size / 256) ** 2) / (first.size / 256) < 255 + 5 * 22.6
    flat = first.ravel()[: first.size // 2 * 2]
    # Neighbouring entries come from one random number; four standard errors.
    assert abs(np.corrcoef(flat[::2], flat[1::2])[0, 1]) < 4 / np.sqrt(first.size / 2)


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
        (7.0, 0.5, 0.5),
        (7.0, -0.5, 0.0),
        (-7.0, -0.5, -0.5),
        (-7.0, 0.5, 0.0),
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


def test_each_column_keeps_its_multiset():
    values = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    shuffled = shuffle_bits(tf.constant(values), [3, 4]).numpy()
    np.testing.assert_array_equal(np.sort(shuffled, axis=0), np.sort(values, axis=0))
    assert (shuffled != values).any(axis=0).all()


def test_columns_move_independently():
    # Identical columns are perfectly correlated before, and nearly uncorrelated after.
    column = np.random.default_rng(1).normal(size=(5000, 1)).astype(np.float32)
    shuffled = shuffle_bits(tf.constant(np.tile(column, (1, 2))), [0, 0]).numpy()
    assert abs(np.corrcoef(shuffled.T)[0, 1]) < 0.06


def test_seed_decides():
    values = tf.reshape(tf.range(40.0), [20, 2])
    np.testing.assert_array_equal(shuffle_bits(values, [1, 1]), shuffle_bits(values, [1, 1]))
    assert (shuffle_bits(values, [1, 1]).numpy() != shuffle_bits(values, [1, 2]).numpy()).any()
