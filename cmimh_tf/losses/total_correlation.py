"""Independence of the bits: total correlation by the density-ratio trick."""

import tensorflow as tf


def total_correlation(logits_on_probs: tf.Tensor) -> tf.Tensor:
    """L_ind: KL(q(h) || prod_j q(h_j)), estimated by the mean logit of a discriminator.

    The logit of a discriminator that tells joint from shuffled codes is an estimate of
    log q(h) - log prod_j q(h_j).

    Args:
        logits_on_probs: [batch, 1] tensor, D on unshuffled probs.

    Returns:
        A scalar; 0 when the bits look independent.
    """
    return tf.reduce_mean(logits_on_probs)


def discriminator_loss(logits_on_probs: tf.Tensor, logits_on_shuffled: tf.Tensor) -> tf.Tensor:
    """Binary cross-entropy of telling probs (label 1) from probs shuffled per bit (label 0).

    -log sigmoid(a) = softplus(-a) and -log(1 - sigmoid(a)) = softplus(a). A discriminator that knows
    nothing has log 2.

    Args:
        logits_on_probs: [batch, 1] tensor.
        logits_on_shuffled: [batch, 1] tensor.

    Returns:
        A scalar.
    """
    on_probs = tf.reduce_mean(tf.nn.softplus(-logits_on_probs))
    on_shuffled = tf.reduce_mean(tf.nn.softplus(logits_on_shuffled))
    return 0.5 * (on_probs + on_shuffled)
