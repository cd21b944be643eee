"""The modality gap: the symmetric KL divergence between the two modalities' code distributions."""

import tensorflow as tf


def symmetric_kl(image_logits: tf.Tensor, text_logits: tf.Tensor) -> tf.Tensor:
    """D_SKL, summed over bits and averaged over the batch.

    For Bernoulli distributions KL(p || q) + KL(q || p) = (p - q)(logit p - logit q): no logarithm of a
    probability is ever taken.

    Args:
        image_logits: [batch, code_length] tensor.
        text_logits: [batch, code_length] tensor.

    Returns:
        A scalar, at least 0.
    """
    difference = tf.sigmoid(image_logits) - tf.sigmoid(text_logits)
    return tf.reduce_mean(tf.reduce_sum(difference * (image_logits - text_logits), axis=1))
