"""Vectors of many pictures or texts, batch by batch, while the next pictures are being decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cmimh_tf.features.image_features import ImageFeatures

IMAGE_BATCH = 32
TEXT_BATCH = 64


class VectorComputer:
    """Compiled features of pictures and texts; either may be left out.

    Args:
        image_features: of `make_image_features`, or None.
        text_features: of `make_text_features`, or None.
    """

    def __init__(self, image_features: ImageFeatures | None = None, text_features: Any = None):
        self.image_features = image_features
        self.text_features = text_features
        if image_features is not None:
            size = image_features.picture_size
            self._image_vectors = _compiled(image_features.vectors, tf.TensorSpec([None, size, size, 3], tf.float32))
        if text_features is not None:
            self._text_vectors = _compiled(text_features, tf.TensorSpec([None], tf.string))

    def images(self, pictures: Iterable[bytes], batch_size: int = IMAGE_BATCH) -> Iterator[np.ndarray]:
        """float32 [batch, dim] for each batch of encoded pictures, in order.

        Decoding runs on all processors ahead of the network, at most two batches, so that memory does not grow.

        Raises:
            ValueError: if a picture cannot be decoded.
        """
        features = self.image_features
        assert features is not None
        dataset = tf.data.Dataset.from_generator(lambda: pictures, output_signature=tf.TensorSpec([], tf.string))
        dataset = dataset.map(features.prepare, num_parallel_calls=tf.data.AUTOTUNE).batch(batch_size).prefetch(1)
        done = 0
        try:
            for batch in dataset:
                yield self._image_vectors(batch).numpy()
                done += len(batch)
        except tf.errors.InvalidArgumentError as error:
            raise ValueError(
                f"`pictures` must be JPEG, PNG, GIF or BMP. Received: another among those after the first {done}."
            ) from error

    def texts(self, texts: Iterable[str], batch_size: int = TEXT_BATCH) -> Iterator[np.ndarray]:
        """float32 [batch, dim] for each batch of texts, in order."""
        batch: list[str] = []
        for text in texts:
            batch.append(text)
            if len(batch) == batch_size:
                yield self._text_vectors(tf.constant(batch)).numpy()
                batch = []
        if batch:
            yield self._text_vectors(tf.constant(batch)).numpy()


def _compiled(function: Callable[[tf.Tensor], tf.Tensor], spec: tf.TensorSpec) -> Any:
    # With open sizes, so that a last, smaller batch is not traced again.
    return tf.function(function, input_signature=[spec], autograph=False)
