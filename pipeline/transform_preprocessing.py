"""The fitted Transform graph as the preprocessing of a served model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from pipeline.features import CAPTION, IMAGE, IMAGE_BYTES, TEXT
from serving.preprocessing import Preprocessing


class TransformPreprocessing(Preprocessing):
    """What Transform was fitted on is what clients may send: vectors, or pictures and captions.

    A modality that was fitted on raw inputs takes vectors too: those that Transform made of them, as they are.

    Args:
        transform_output: the fitted graph.
    """

    def __init__(self, transform_output: tft.TFTransformOutput):
        raw, transformed = transform_output.raw_feature_spec(), transform_output.transformed_feature_spec()
        image_spec = raw[IMAGE] if IMAGE in raw else transformed[IMAGE]
        text_spec = raw[TEXT] if TEXT in raw else transformed[TEXT]
        super().__init__(image_spec.shape[0], text_spec.shape[0], name="transform_preprocessing")
        # An attribute, so that the vocabulary and the constants are saved with the model.
        self.transform_layer = transform_output.transform_features_layer()
        self._takes_image, self._takes_text = IMAGE in raw, TEXT in raw
        if IMAGE not in raw:
            self.image_bytes_vectors = self._picture_vectors
        if TEXT not in raw:
            self.caption_vectors = lambda caption: self._transform(CAPTION, caption[:, None], TEXT)

    def image_vectors(self, image: tf.Tensor) -> tf.Tensor:
        return self._transform(IMAGE, image, IMAGE) if self._takes_image else image

    def text_vectors(self, text: tf.Tensor) -> tf.Tensor:
        return self._transform(TEXT, text, TEXT) if self._takes_text else text

    def _picture_vectors(self, image_bytes: tf.Tensor) -> tf.Tensor:
        is_empty = tf.reduce_any(tf.strings.length(image_bytes) == 0)
        message = "`image_bytes` must hold a picture in every row. Received: an empty string."
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(is_empty), [message])]):
            return self._transform(IMAGE_BYTES, tf.identity(image_bytes)[:, None], IMAGE)

    def _transform(self, name: str, values: tf.Tensor, output: str) -> Any:
        """One output of the graph from one input; what needs other inputs is computed from blanks and dropped."""
        return self.transform_layer({name: values})[output]
