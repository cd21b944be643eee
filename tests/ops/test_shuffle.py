import numpy as np
import tensorflow as tf

from cmimh_tf.ops.shuffle import shuffle_bits


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
