"""What all features of pictures have in common: decode and resize each picture, then compute the vectors of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

CHANNELS = 3


def decode_picture(encoded: tf.Tensor) -> tf.Tensor:
    """A JPEG, PNG, GIF (its first frame) or BMP -> uint8 [H, W, 3], RGB.

    JPEGs are decoded with the accurate cosine transform, as in most other libraries. TensorFlow's default is faster,
    but its errors matter to a network: the cosine between EfficientNet's features of both is 0.994.

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
    """[H, W, 3] -> float32 [size, size, 3] with the same range of values; with antialiasing."""
    return tf.image.resize(tf.cast(picture, tf.float32), [size, size], antialias=True)


def fit_shorter_side(picture: tf.Tensor, size: int) -> tf.Tensor:
    """[H, W, 3] -> float32 of the same proportions, with `size` pixels on the shorter side."""
    sides = tf.shape(picture)[:2]
    shorter = tf.reduce_min(sides)
    # The longer side is rounded down, as in torchvision.
    resized = tf.image.resize(tf.cast(picture, tf.float32), sides * size // shorter, antialias=True)
    return tf.ensure_shape(resized, [None, None, CHANNELS])


def crop_centre(picture: tf.Tensor, size: int) -> tf.Tensor:
    """[H, W, 3] with sides of at least `size` -> the central [size, size, 3]."""
    sides = tf.shape(picture)[:2]
    top, left = tf.unstack((sides - size) // 2)
    return tf.ensure_shape(picture[top : top + size, left : left + size], [size, size, CHANNELS])


class ImageFeatures(tf.Module):
    """Maps encoded pictures, string [B], to float32 [B, dim], in eager or graph mode.

    The two steps can also be called separately, so that decoding can overlap with computing: `prepare` for one picture
    and `vectors` for a batch.

    Args:
        name: its name in `make_image_features`.
        dim: width of the vectors.
        picture_size: height and width of a prepared picture.
        prepare: uint8 [H, W, 3] -> float32 [picture_size, picture_size, 3].
        vectors: float32 [B, picture_size, picture_size, 3] -> float32 [B, dim].
        network: the module whose variables `vectors` uses, such as a Keras model, so that a SavedModel contains them;
            None if there are none.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        picture_size: int,
        prepare: Callable[[tf.Tensor], tf.Tensor],
        vectors: Callable[[tf.Tensor], tf.Tensor],
        network: Any = None,
    ):
        super().__init__(name="image_features")
        self.features_name = name
        self.dim = dim
        self.picture_size = picture_size
        self.network = network
        # In a tuple: tf.Module does not track it.
        self._functions = (prepare, vectors)

    def prepare(self, encoded: tf.Tensor) -> tf.Tensor:
        """One encoded picture, string [] -> float32 [picture_size, picture_size, 3]."""
        prepared = self._functions[0](decode_picture(encoded))
        return tf.ensure_shape(prepared, [self.picture_size, self.picture_size, CHANNELS])

    def vectors(self, pictures: tf.Tensor) -> tf.Tensor:
        """Prepared pictures, float32 [B, picture_size, picture_size, 3] -> float32 [B, dim]."""
        # A convolution of no pictures has a wrong shape where TensorFlow uses oneDNN.
        vectors = tf.cond(
            tf.equal(tf.shape(pictures)[0], 0),
            lambda: tf.zeros([0, self.dim]),
            lambda: self._functions[1](pictures),
        )
        return tf.ensure_shape(vectors, [None, self.dim])

    def __call__(self, image_bytes: Any) -> tf.Tensor:
        # One at a time because pictures differ in size.
        signature = tf.TensorSpec([self.picture_size, self.picture_size, CHANNELS], tf.float32)
        return self.vectors(
            tf.map_fn(self.prepare, tf.convert_to_tensor(image_bytes, tf.string), fn_output_signature=signature)
        )
