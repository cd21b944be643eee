"""What happens to a request's inputs before the encoders see them, as graph code inside the SavedModel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

GraphFunction = Callable[[tf.Tensor], tf.Tensor]

# tf.Example keys by the input that they hold; an Example with several is hashed as the first one that it has.
EXAMPLE_KEYS = ("image", "image_bytes", "text", "caption")


class Preprocessing(tf.Module):
    """Maps what clients send to the vectors that the encoders were trained on. This base class changes nothing.

    A subclass overrides the methods that its fitted pipeline has an answer for. All of them are traced into the
    SavedModel, so they must be TensorFlow graph code, and tables, variables or loaded Transform graphs that they
    use must be attributes of the module, which is what makes TensorFlow save them.

    Args:
        image_width: the width of the image vectors that clients send.
        text_width: the width of the text vectors that clients send.

    Attributes:
        image_bytes_vectors: string [B] of encoded pictures -> float [B, image_units], or None if the pipeline was
            not fitted on pictures. A picture that cannot be decoded must be an InvalidArgumentError.
        caption_vectors: string [B] of UTF-8 -> float [B, text_units], or None if it was not fitted on captions.
        image_features_version, text_features_version: of the features whose vectors `image_vectors` and `text_vectors`
            take, as `cmimh_tf.features.registry` gives them; None where clients bring vectors of their own.
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
        """[B, image_width] float -> [B, image_units] float, what the image encoder takes."""
        return image

    def text_vectors(self, text: tf.Tensor) -> tf.Tensor:
        """[B, text_width] float -> [B, text_units] float, what the text encoder takes."""
        return text

    @property
    def example_spec(self) -> Mapping[str, Any]:
        """How `serving_default` parses serialized tf.Examples, by the keys of `EXAMPLE_KEYS`.

        Ragged, so that a feature that is not there differs from one that is all zeros, and a wrong width can be
        answered with the right one.
        """
        spec = {"image": tf.io.RaggedFeature(tf.float32), "text": tf.io.RaggedFeature(tf.float32)}
        if self.image_bytes_vectors is not None:
            spec["image_bytes"] = tf.io.RaggedFeature(tf.string)
        if self.caption_vectors is not None:
            spec["caption"] = tf.io.RaggedFeature(tf.string)
        return spec


class PictureAndCaptionPreprocessing(Preprocessing):
    """Pictures and captions by features of `cmimh_tf.features`; vectors go through as they are.

    Args:
        text_features: such as a `BagOfWords` that was fitted on the training captions.
        image_features: of `make_image_features`; None takes `descriptor`.
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
