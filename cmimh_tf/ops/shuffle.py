"""The shuffle that turns a joint distribution over bits into the product of its marginals."""

import tensorflow as tf


def shuffle_bits(probs: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Permutes every column of the batch independently of the others.

    Each column keeps its multiset of values, while the dependence between columns is destroyed.

    Args:
        probs: [batch, code_length] tensor.
        seed: [2] int tensor.

    Returns:
        [batch, code_length] tensor.
    """
    rows, width = tf.shape(probs)[0], tf.shape(probs)[1]
    order = tf.argsort(tf.random.stateless_uniform([width, rows], seed), axis=1)
    # Entry [i, j] of the result is probs[order[j, i], j], read from the flattened matrix.
    return tf.gather(tf.reshape(probs, [-1]), tf.transpose(order) * width + tf.range(width))
