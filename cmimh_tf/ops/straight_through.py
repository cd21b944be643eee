"""The binary step whose gradient is the identity."""

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
