"""Preprocessing of a request's inputs, as TensorFlow graph code inside the SavedModel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

GraphFunction = Callable[[tf.Tensor], tf.Tensor]

# The keys of tf.Examples. If an Example has several of them, the first one in this order is hashed.
EXAMPLE_KEYS = ("image", "image_bytes", "text", "caption")


class Preprocessing(tf.Module):
    """Maps the inputs of clients to the vectors that the encoders were trained on. This base class changes nothing.

    A subclass overrides the methods that its fitted pipeline supports. They are traced into the SavedModel, so they
    must be TensorFlow graph code. TensorFlow only saves tables, variables and Transform graphs that are attributes of
    the module.

    Args:
        image_width: the width of clients' image vectors.
        text_width: the width of clients' text vectors.

    Attributes:
        image_bytes_vectors: string [B] of encoded pictures -> float [B, image_units], or None if the pipeline was
            not fitted on pictures. A picture that cannot be decoded must raise an InvalidArgumentError.
        caption_vectors: string [B] of UTF-8 -> float [B, text_units], or None if it was not fitted on captions.
        image_features_version, text_features_version: the versions of the features that `image_vectors` and
            `text_vectors` expect; None if clients compute their own vectors.
    """

    image_bytes_vectors: GraphFunction | None = None
    caption_vectors: GraphFunction | None = None
    image_features_version: str | None = None
    text_features_version: str | None = None

    def __init__(self, image_width: int, text_width: int, name: str = "preprocessing"):
        super().__init__(name=name)
        self.image_width = image_width
        self.text_width = text_width

    def image_vectors(self, image: tf.Tensor) -> tf.Tensor:
        """float [B, image_width] -> float [B, image_units], the input of the image encoder."""
        return image

    def text_vectors(self, text: tf.Tensor) -> tf.Tensor:
        """float [B, text_width] -> float [B, text_units], the input of the text encoder."""
        return text

    @property
    def example_spec(self) -> Mapping[str, Any]:
        """The features of serialized tf.Examples, for `serving_default`.

        They are ragged, to distinguish a missing feature from zeros and to report a wrong width.
        """
        spec = {"image": tf.io.RaggedFeature(tf.float32), "text": tf.io.RaggedFeature(tf.float32)}
        if self.image_bytes_vectors is not None:
            spec["image_bytes"] = tf.io.RaggedFeature(tf.string)
        if self.caption_vectors is not None:
            spec["caption"] = tf.io.RaggedFeature(tf.string)
        return spec


class PictureAndCaptionPreprocessing(Preprocessing):
    """Converts pictures and captions with features of `cmimh_tf.features`; vectors are not changed.

    Args:
        text_features: for example a `BagOfWords` that was fitted on the training captions.
        image_features: from `make_image_features`; None means `descriptor`.
    """

    def __init__(self, text_features: Any, image_features: Any = None):
        from cmimh_tf.features import make_image_features

        image_features = image_features or make_image_features("descriptor")
        super().__init__(image_features.dim, text_features.dim, name="picture_and_caption_preprocessing")
        self.image_features = image_features
        self.text_features = text_features

    def image_bytes_vectors(self, image_bytes: tf.Tensor) -> tf.Tensor:
        """string [B], JPEG, PNG, GIF or BMP -> float32 [B, image_width]."""
        return self.image_features(image_bytes)

    def caption_vectors(self, caption: tf.Tensor) -> tf.Tensor:
        """string [B] -> float32 [B, text_width]."""
        return self.text_features(caption)
