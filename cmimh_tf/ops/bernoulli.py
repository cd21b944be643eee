"""Bernoulli codes from logits: sampled for training, thresholded for inference."""

import tensorflow as tf

from cmimh_tf.ops.straight_through import straight_through_step


def logistic_sample(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """z = logits + log u - log(1 - u) with u uniform in (0, 1), so that P(z >= 0) = sigmoid(logits).

    Args:
        logits: [batch, code_length] float tensor.
        seed: [2] int tensor; equal seeds give equal samples.

    Returns:
        [batch, code_length] tensor of logistic variables centred at `logits`.
    """
    # The open interval keeps both logarithms finite in float32.
    uniform = tf.random.stateless_uniform(tf.shape(logits), seed, minval=1e-6, maxval=1.0 - 1e-6)
    return logits + tf.math.log(uniform) - tf.math.log1p(-uniform)


def sample_codes(logits: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Codes h ~ Bernoulli(sigmoid(logits)) with the straight-through gradient dh/dlogits = 1.

    Args:
        logits: [batch, code_length] float tensor.
        seed: [2] int tensor.

    Returns:
        [batch, code_length] tensor of zeros and ones.
    """
    return straight_through_step(logistic_sample(logits, seed))
