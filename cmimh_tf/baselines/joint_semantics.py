"""What DJSRH has the codes of a batch reproduce: the similarities of both views, joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


def cosine_similarities(features: tf.Tensor, non_negative: bool) -> tf.Tensor:
    """Cosines of all pairs of rows, in [-1, 1].

    Features without negative values, such as counts or activations behind a ReLU, only have cosines in [0, 1]:
    these are stretched by 2 c - 1, as the authors do with theirs.

    Args:
        features: [m, D].
        non_negative: whether no feature of the whole data set is below 0.
    """
    import tensorflow as tf

    unit = tf.math.l2_normalize(features, axis=1)
    cosines = tf.matmul(unit, unit, transpose_b=True)
    return 2 * cosines - 1 if non_negative else cosines


def joint_semantics(
    image_similarities: tf.Tensor,
    text_similarities: tf.Tensor,
    *,
    image_share: float,
    second_order: float,
    scale: float,
) -> tf.Tensor:
    """S = mu ((1 - eta) J + eta J J' / m), with J = beta S_i + (1 - beta) S_t.

    The second term compares how two items relate to all m items of the batch: friends of friends.

    Args:
        image_similarities: S_i, [m, m] cosines of images.
        text_similarities: S_t, [m, m] cosines of texts.
        image_share: beta.
        second_order: eta.
        scale: mu.

    Returns:
        S, [m, m].
    """
    import tensorflow as tf

    joined = image_share * image_similarities + (1 - image_share) * text_similarities
    batch_size = tf.cast(tf.shape(joined)[0], joined.dtype)
    friends_of_friends = tf.matmul(joined, joined, transpose_b=True) / batch_size
    return scale * ((1 - second_order) * joined + second_order * friends_of_friends)


def reconstruction_loss(
    image_codes: tf.Tensor, text_codes: tf.Tensor, target: tf.Tensor, *, within_weight: float
) -> tf.Tensor:
    """Mean squared difference of the codes' cosines and the target, across views plus lambda times within each.

    Args:
        image_codes: [m, L] relaxed codes.
        text_codes: [m, L] relaxed codes, paired by row.
        target: S, [m, m].
        within_weight: lambda.
    """
    import tensorflow as tf

    image_unit, text_unit = tf.math.l2_normalize(image_codes, axis=1), tf.math.l2_normalize(text_codes, axis=1)

    def error(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(tf.square(tf.matmul(a, b, transpose_b=True) - target))

    within = error(image_unit, image_unit) + error(text_unit, text_unit)
    return error(image_unit, text_unit) + within_weight * within
