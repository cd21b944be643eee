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
    """

    image_bytes_vectors: GraphFunction | None = None
    caption_vectors: GraphFunction | None = None

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
    """Pictures by `describe_pictures`, captions by a fitted `BagOfWords`; vectors go through as they are.

    Args:
        bag_of_words: fitted on the training captions.
    """

    def __init__(self, bag_of_words: Any):
        from cmimh_tf.features.descriptor import DESCRIPTOR_DIM

        super().__init__(DESCRIPTOR_DIM, bag_of_words.dim, name="picture_and_caption_preprocessing")
        self.bag_of_words = bag_of_words

    def image_bytes_vectors(self, image_bytes: tf.Tensor) -> tf.Tensor:
        """string [B], JPEG, PNG, GIF or BMP -> float32 [B, DESCRIPTOR_DIM]."""
        # One at a time: pictures of one request may differ in size.
        return tf.map_fn(
            _describe_picture, image_bytes, fn_output_signature=tf.TensorSpec([self.image_width], tf.float32)
        )

    def caption_vectors(self, caption: tf.Tensor) -> tf.Tensor:
        """string [B] -> float32 [B, dim of the bag of words]."""
        return self.bag_of_words(caption)


def _describe_picture(image_bytes: tf.Tensor) -> tf.Tensor:
    """One encoded picture -> float32 [DESCRIPTOR_DIM]."""
    from cmimh_tf.features.descriptor import describe_pictures

    picture = tf.io.decode_image(image_bytes, channels=3, expand_animations=False)
    picture.set_shape([None, None, 3])
    return describe_pictures(picture[tf.newaxis])[0]
