"""The bound on I(x; h): how well a decoder restores the features from the code."""

import tensorflow as tf


def reconstruction_loss(features: tf.Tensor, reconstructed: tf.Tensor) -> tf.Tensor:
    """Squared error summed over dimensions and averaged over the batch.

    Up to constants this is -E[log q(x | h)] with a Gaussian decoder, so that minimising it maximises the
    variational lower bound of I(x; h).

    Args:
        features: [batch, dimensions] tensor.
        reconstructed: [batch, dimensions] tensor.

    Returns:
        A scalar.
    """
    return tf.reduce_mean(tf.reduce_sum(tf.math.squared_difference(features, reconstructed), axis=1))
