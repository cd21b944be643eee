"""The fitted Transform graph as the preprocessing of a served model."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from cmimh_tf.features import make_image_features, make_text_features
from cmimh_tf.features.registry import image_features_version, text_features_version
from pipeline.features import CAPTION, CAPTION_FEATURES, IMAGE, IMAGE_BYTES, IMAGE_FEATURES, TEXT
from serving.preprocessing import Preprocessing


class TransformPreprocessing(Preprocessing):
    """What Transform was fitted on is what clients may send: vectors, or pictures and captions.

    A modality whose features a network made takes these features as vectors too; one that was fitted on raw inputs
    takes the vectors that Transform made of them, as they are.

    Args:
        transform_output: the fitted graph.
        image_features, text_features: names of the networks' features; not needed without.
    """

    def __init__(self, transform_output: tft.TFTransformOutput, image_features: str = "", text_features: str = ""):
        raw, transformed = transform_output.raw_feature_spec(), transform_output.transformed_feature_spec()
        image_input = next((name for name in (IMAGE, IMAGE_FEATURES) if name in raw), None)
        text_input = next((name for name in (TEXT, CAPTION_FEATURES) if name in raw), None)
        image_spec = raw[image_input] if image_input else transformed[IMAGE]
        text_spec = raw[text_input] if text_input else transformed[TEXT]
        super().__init__(image_spec.shape[0], text_spec.shape[0], name="transform_preprocessing")
        self._image_input, self._text_input = image_input, text_input
        # Attributes, so that vocabulary, constants and weights are saved with the model.
        self.transform_layer = transform_output.transform_features_layer()
        self.image_features = make_image_features(image_features) if image_input == IMAGE_FEATURES else None
        self.text_features = make_text_features(text_features) if text_input == CAPTION_FEATURES else None
        if self.image_features is not None:
            self.image_features_version = image_features_version(image_features)
        if self.text_features is not None:
            self.text_features_version = text_features_version(text_features)
        if IMAGE not in raw:
            self.image_bytes_vectors = self._picture_vectors
        if TEXT not in raw:
            self.caption_vectors = self._caption_vectors

    def image_vectors(self, image: tf.Tensor) -> tf.Tensor:
        return self._transform(self._image_input, image, IMAGE) if self._image_input else image

    def text_vectors(self, text: tf.Tensor) -> tf.Tensor:
        return self._transform(self._text_input, text, TEXT) if self._text_input else text

    def _caption_vectors(self, caption: tf.Tensor) -> tf.Tensor:
        if self.text_features is not None:
            return self.text_vectors(self.text_features(caption))
        return self._transform(CAPTION, caption[:, None], TEXT)

    def _picture_vectors(self, image_bytes: tf.Tensor) -> tf.Tensor:
        is_empty = tf.reduce_any(tf.strings.length(image_bytes) == 0)
        message = "`image_bytes` must hold a picture in every row. Received: an empty string."
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(is_empty), [message])]):
            image_bytes = tf.identity(image_bytes)
        if self.image_features is not None:
            return self.image_vectors(self.image_features(image_bytes))
        return self._transform(IMAGE_BYTES, image_bytes[:, None], IMAGE)

    def _transform(self, name: str, values: tf.Tensor, output: str) -> Any:
        """One output of the graph from one input; what needs other inputs is computed from blanks and dropped."""
        return self.transform_layer({name: values})[output]
