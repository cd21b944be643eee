"""The Jensen-Shannon bound on the mutual information of the two modalities' codes."""

import math

import tensorflow as tf


def js_mutual_information(scores: tf.Tensor) -> tf.Tensor:
    """2 log 2 - E_joint[softplus(-T)] - E_marginal[softplus(T)].

    The joint samples are the diagonal of the batch's score matrix, the marginal samples all other entries.
    A critic that knows nothing (T = 0 everywhere) gives 0; a perfect one approaches 2 log 2.

    Args:
        scores: [batch, batch] tensor, `scores[i, j]` = T(image i, text j).

    Returns:
        A scalar, at most 2 log 2.
    """
    joint = tf.linalg.diag_part(scores)
    batch = tf.cast(tf.shape(scores)[0], scores.dtype)
    off_diagonal = tf.reduce_sum(tf.nn.softplus(scores)) - tf.reduce_sum(tf.nn.softplus(joint))
    return _bound(tf.reduce_mean(tf.nn.softplus(-joint)), off_diagonal / (batch * (batch - 1.0)))


def js_mutual_information_from_pairs(joint: tf.Tensor, marginal: tf.Tensor) -> tf.Tensor:
    """The same bound from one score a joint pair and one a marginal (shuffled) pair.

    Args:
        joint: [pairs] tensor of T over true pairs.
        marginal: [pairs] tensor of T over shuffled pairs.

    Returns:
        A scalar, at most 2 log 2.
    """
    return _bound(tf.reduce_mean(tf.nn.softplus(-joint)), tf.reduce_mean(tf.nn.softplus(marginal)))


def _bound(joint_penalty: tf.Tensor, marginal_penalty: tf.Tensor) -> tf.Tensor:
    return 2.0 * math.log(2.0) - joint_penalty - marginal_penalty
