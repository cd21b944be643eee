"""Encoded pictures to arrays of one size, in TensorFlow graph code."""

from __future__ import annotations

import tensorflow as tf

CHANNELS = 3


def decode_picture(encoded: tf.Tensor) -> tf.Tensor:
    """A JPEG, PNG, GIF (its first frame) or BMP -> uint8 [H, W, 3], RGB.

    JPEG's cosine transform is computed accurately, as in most other libraries. TensorFlow's default is a faster one,
    whose errors are small to the eye but not to a network: EfficientNet's features then turn by a cosine of 0.994.

    Args:
        encoded: string [].
    """
    picture = tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: tf.io.decode_jpeg(encoded, channels=CHANNELS, dct_method="INTEGER_ACCURATE"),
        lambda: tf.io.decode_image(encoded, channels=CHANNELS, expand_animations=False),
    )
    return tf.ensure_shape(picture, [None, None, CHANNELS])


def stretch(picture: tf.Tensor, size: int) -> tf.Tensor:
    """[H, W, 3] -> float32 [size, size, 3], of the same range of values; smoothed first where it shrinks."""
    return tf.image.resize(tf.cast(picture, tf.float32), [size, size], antialias=True)


def fit_shorter_side(picture: tf.Tensor, size: int) -> tf.Tensor:
    """[H, W, 3] -> float32 of the same proportions, with `size` pixels on the shorter side."""
    sides = tf.shape(picture)[:2]
    shorter = tf.reduce_min(sides)
    # As torchvision: the longer side is rounded down, in integers.
    resized = tf.image.resize(tf.cast(picture, tf.float32), sides * size // shorter, antialias=True)
    return tf.ensure_shape(resized, [None, None, CHANNELS])


def crop_centre(picture: tf.Tensor, size: int) -> tf.Tensor:
    """[H, W, 3], at least `size` each way -> [size, size, 3] from its middle."""
    sides = tf.shape(picture)[:2]
    top, left = tf.unstack((sides - size) // 2)
    return tf.ensure_shape(picture[top : top + size, left : left + size], [size, size, CHANNELS])
