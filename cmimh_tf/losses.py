"""The terms of the CMIMH objective: pure functions of named tensors, without weights inside.

Each entry of `cmimh_tf.terms.TERMS` has a function of the same name here. B is the batch size, L the code length.
"""

from __future__ import annotations

import math

import tensorflow as tf


def neighbourhood(
    coordinates: tf.Tensor, coordinates_from_image: tf.Tensor, coordinates_from_text: tf.Tensor
) -> tf.Tensor:
    """L_nbr, the bound on I(y; h): squared error of decoding the coordinates y of a pair from each of its codes.

    One decoder serves both modalities, so that codes with the same meaning must have the same bits. This term is not
    the paper's.

    Args:
        coordinates: [B, units] tensor, see `cmimh_tf.training.neighbourhood`.
        coordinates_from_image: [B, units] tensor, decoded from the image code.
        coordinates_from_text: [B, units] tensor, decoded from the text code.

    Returns:
        A scalar, at least 0.
    """
    return squared_error(coordinates, coordinates_from_image) + squared_error(coordinates, coordinates_from_text)


def reconstruction(
    image_features: tf.Tensor,
    image_from_image: tf.Tensor,
    text_features: tf.Tensor,
    text_from_text: tf.Tensor,
    reduction: str = "sum",
) -> tf.Tensor:
    """L_rec, the bound on I(x; h): how well each modality is decoded from its own code.

    Up to constants the squared error is -E[log q(x | h)] with a Gaussian decoder, so that minimising it maximises the
    variational lower bound of I(x; h).

    Args:
        image_features: [B, image_units] tensor.
        image_from_image: [B, image_units] tensor, decoded from the image code.
        text_features: [B, text_units] tensor.
        text_from_text: [B, text_units] tensor, decoded from the text code.
        reduction: "sum" or "mean" over dimensions.

    Returns:
        A scalar, at least 0.
    """
    image = squared_error(image_features, image_from_image, reduction)
    return image + squared_error(text_features, text_from_text, reduction)


def cross_reconstruction(
    image_features: tf.Tensor,
    image_from_text: tf.Tensor,
    text_features: tf.Tensor,
    text_from_image: tf.Tensor,
    reduction: str = "sum",
) -> tf.Tensor:
    """L_cross, the bound on I(x_image; h_text) + I(x_text; h_image): each modality decoded from the other's code.

    Args:
        image_features: [B, image_units] tensor.
        image_from_text: [B, image_units] tensor, decoded from the text code.
        text_features: [B, text_units] tensor.
        text_from_image: [B, text_units] tensor, decoded from the image code.
        reduction: "sum" or "mean" over dimensions.

    Returns:
        A scalar, at least 0.
    """
    image = squared_error(image_features, image_from_text, reduction)
    return image + squared_error(text_features, text_from_image, reduction)


def mutual_information(critic_scores: tf.Tensor, critic_negatives: tf.Tensor) -> tf.Tensor:
    """I_JS, the Jensen-Shannon bound on I(h_image; h_text): 2 log 2 - E_joint[softplus(-T)] - E_marginal[softplus(T)].

    The joint pairs are the diagonal of each score matrix. A critic that cannot tell pairs apart (T = 0 everywhere)
    gives 0; a perfect critic approaches 2 log 2.

    Args:
        critic_scores: [samples, B, B] tensor, `critic_scores[s, i, j]` = T(image i, text j).
        critic_negatives: [B, B] tensor, 1 for the marginal pairs and 0 elsewhere.

    Returns:
        A scalar, at most 2 log 2: the mean over the samples.
    """
    joint = tf.reduce_mean(tf.nn.softplus(-tf.linalg.diag_part(critic_scores)))
    marginal = tf.reduce_mean(tf.reduce_sum(tf.nn.softplus(critic_scores) * critic_negatives, axis=[1, 2]))
    # A batch of one pair has no negatives.
    return 2.0 * math.log(2.0) - joint - tf.math.divide_no_nan(marginal, tf.reduce_sum(critic_negatives))


def modality_gap(image_logits: tf.Tensor, text_logits: tf.Tensor, reduction: str = "sum") -> tf.Tensor:
    """D_SKL, the symmetric KL divergence between the two code distributions, averaged over the batch.

    For Bernoulli distributions KL(p || q) + KL(q || p) = (p - q)(logit p - logit q), which needs no logarithm of a
    probability.

    Args:
        image_logits: [B, L] tensor.
        text_logits: [B, L] tensor.
        reduction: "sum" over bits, as in the paper, or "mean".

    Returns:
        A scalar, at least 0.
    """
    difference = tf.sigmoid(image_logits) - tf.sigmoid(text_logits)
    return tf.reduce_mean(_reduced(difference * (image_logits - text_logits), reduction))


def independence(image_joint_logits: tf.Tensor, text_joint_logits: tf.Tensor) -> tf.Tensor:
    """L_ind, the total correlation KL(q(h) || prod_j q(h_j)) of both modalities by the density-ratio trick.

    The logit of a discriminator between joint and shuffled codes estimates log q(h) - log prod_j q(h_j).

    Args:
        image_joint_logits: [B, 1] tensor, the discriminator's logits of the image probs.
        text_joint_logits: [B, 1] tensor, the discriminator's logits of the text probs.

    Returns:
        A scalar; 0 when the bits look independent.
    """
    return tf.reduce_mean(image_joint_logits) + tf.reduce_mean(text_joint_logits)


def balance(image_probs: tf.Tensor, text_probs: tf.Tensor) -> tf.Tensor:
    """L_bal: the sum over bits of abs(batch mean of mu - 0.5), over both modalities.

    Args:
        image_probs: [B, L] tensor.
        text_probs: [B, L] tensor.

    Returns:
        A scalar between 0 and L.
    """
    means = [tf.reduce_mean(probs, axis=0) for probs in (image_probs, text_probs)]
    return tf.add_n([tf.reduce_sum(tf.abs(mean - 0.5)) for mean in means])


def discriminator(
    image_joint_logits: tf.Tensor,
    image_shuffled_logits: tf.Tensor,
    text_joint_logits: tf.Tensor,
    text_shuffled_logits: tf.Tensor,
) -> tf.Tensor:
    """The discriminators' own loss, not part of the objective: binary cross-entropy of joint against shuffled probs.

    A discriminator that cannot tell them apart has a loss of log 2 per modality.

    Args:
        image_joint_logits: [B, 1] tensor.
        image_shuffled_logits: [B, 1] tensor.
        text_joint_logits: [B, 1] tensor.
        text_shuffled_logits: [B, 1] tensor.

    Returns:
        A scalar, at least 0.
    """
    image = binary_cross_entropy(image_joint_logits, image_shuffled_logits)
    return image + binary_cross_entropy(text_joint_logits, text_shuffled_logits)


def squared_error(targets: tf.Tensor, reconstructed: tf.Tensor, reduction: str = "sum") -> tf.Tensor:
    """The squared error, "sum" or "mean" over dimensions, averaged over the batch, a scalar."""
    return tf.reduce_mean(_reduced(tf.math.squared_difference(targets, reconstructed), reduction))


def _reduced(values: tf.Tensor, reduction: str) -> tf.Tensor:
    """[B, units] -> [B]."""
    return tf.reduce_mean(values, axis=1) if reduction == "mean" else tf.reduce_sum(values, axis=1)


def binary_cross_entropy(positive_logits: tf.Tensor, negative_logits: tf.Tensor) -> tf.Tensor:
    """The mean of -log sigmoid over positives and of -log(1 - sigmoid) over negatives, half each, a scalar."""
    # -log sigmoid(a) = softplus(-a) and -log(1 - sigmoid(a)) = softplus(a).
    positive = tf.reduce_mean(tf.nn.softplus(-positive_logits))
    return 0.5 * (positive + tf.reduce_mean(tf.nn.softplus(negative_logits)))
