"""Bit balance: each bit should be one for half of the items."""

import tensorflow as tf


def balance_loss(probs: tf.Tensor) -> tf.Tensor:
    """L_bal: the sum over bits of abs(batch mean of mu - 0.5).

    Args:
        probs: [batch, code_length] tensor.

    Returns:
        A scalar between 0 and code_length / 2.
    """
    return tf.reduce_sum(tf.abs(tf.reduce_mean(probs, axis=0) - 0.5))
