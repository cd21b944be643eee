"""What all features of pictures have in common: decode each, then compute vectors of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cmimh_tf.features.pictures import CHANNELS, decode_picture


class ImageFeatures(tf.Module):
    """Maps encoded pictures, string [B], to float32 [B, dim], in eager or graph mode.

    The two halves can also be called apart, so that decoding can overlap with computing: `prepare` for one picture and
    `vectors` for a batch.

    Args:
        name: by which `make_image_features` finds it.
        dim: width of the vectors.
        picture_size: height and width of what `prepare` makes.
        prepare: uint8 [H, W, 3] -> float32 [picture_size, picture_size, 3].
        vectors: float32 [B, picture_size, picture_size, 3] -> float32 [B, dim].
        network: what `vectors` reads, such as a Keras model, to be saved with a graph; None if it reads nothing.
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
        # In a tuple, which hides them from tracking.
        self._functions = (prepare, vectors)

    def prepare(self, encoded: tf.Tensor) -> tf.Tensor:
        """One encoded picture, string [] -> float32 [picture_size, picture_size, 3]."""
        prepared = self._functions[0](decode_picture(encoded))
        return tf.ensure_shape(prepared, [self.picture_size, self.picture_size, CHANNELS])

    def vectors(self, pictures: tf.Tensor) -> tf.Tensor:
        """Prepared pictures, float32 [B, picture_size, picture_size, 3] -> float32 [B, dim]."""
        return tf.ensure_shape(self._functions[1](pictures), [None, self.dim])

    def __call__(self, image_bytes: Any) -> tf.Tensor:
        # One at a time, as pictures differ in size.
        signature = tf.TensorSpec([self.picture_size, self.picture_size, CHANNELS], tf.float32)
        return self.vectors(
            tf.map_fn(self.prepare, tf.convert_to_tensor(image_bytes, tf.string), fn_output_signature=signature)
        )
