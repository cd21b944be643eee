"""A clip from which gradient descent can come back."""

from collections.abc import Callable

import tensorflow as tf


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
