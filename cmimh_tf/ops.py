"""Stochastic and straight-through operations on logits and probabilities, all seeded and pure."""

from collections.abc import Callable

import tensorflow as tf


@tf.custom_gradient
def straight_through_step(z: tf.Tensor) -> tuple[tf.Tensor, object]:
    """1 where `z` >= 0 and 0 elsewhere; the gradient passes through unchanged.

    The sign convention of all codes is defined here: zero counts as one.

    Args:
        z: float tensor of any shape.

    Returns:
        A tensor of zeros and ones with the shape and dtype of `z`.
    """

    def pass_through(upstream: tf.Tensor) -> tf.Tensor:
        return upstream

    return tf.cast(z >= 0, z.dtype), pass_through


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


def uniform_noise(values: tf.Tensor, largest: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Noise with the shape and dtype of `values`, each entry one of 256 evenly spaced numbers in [-largest, largest].

    Four entries share one random number of 32 bits: most of the time of uniform floats goes into drawing them.

    Args:
        values: [batch, units] float tensor.
        largest: positive scalar.
        seed: [2] int tensor; equal seeds give equal noise.
    """
    rows, units = tf.shape(values)[0], tf.shape(values)[1]
    words = tf.random.stateless_uniform([rows, (units + 3) // 4], seed, None, None, tf.int32)
    levels = tf.reshape(tf.bitcast(words, tf.int8), [rows, -1])[:, :units]
    return (tf.cast(levels, values.dtype) + 0.5) * (largest / 127.5)


def inward_clip(values: tf.Tensor, limit: float) -> tf.Tensor:
    """Clips to [-limit, limit]; beyond it, the gradient passes where a descent step leads back inside.

    A plain clip has no gradient outside, so that whatever once got there is out of reach of every loss for good.

    Args:
        values: float tensor of any shape.
        limit: positive bound.

    Returns:
        Tensor of the same shape.
    """

    @tf.custom_gradient
    def clip(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # A step goes against the gradient: above the limit a positive one leads back, below it a negative one.
            leads_out = tf.logical_or(tf.logical_and(x > limit, upstream < 0), tf.logical_and(x < -limit, upstream > 0))
            return tf.where(leads_out, tf.zeros_like(upstream), upstream)

        return tf.clip_by_value(x, -limit, limit), gradient

    return clip(values)


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
