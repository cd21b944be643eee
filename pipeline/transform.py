"""The preprocessing: `preprocessing_fn`, which Transform fits, and the fitted graph as part of a served model.

    pictures   decoded, then `descriptor`        captions   a bag of words, or tags of a fixed vocabulary
    vectors    unchanged, including the features that networks computed in ExampleGen

Then each modality is centred, projected onto its first principal components if it is wider than the limit, and scaled
so that the training rows have a root-mean-square norm of `input_norm`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from cmimh_tf.features import make_image_features, make_text_features, tokenize
from cmimh_tf.features.projection import rounded, scale_rows, with_fixed_signs
from cmimh_tf.features.registry import (
    DEFAULT_IMAGE_FEATURES,
    DEFAULT_TEXT_FEATURES,
    has_network,
    image_features_version,
    text_features_version,
)
from pipeline.examples import CAPTION, CAPTION_FEATURES, ID, IMAGE, IMAGE_BYTES, IMAGE_FEATURES, LABELS, POSITION, TEXT
from serving.preprocessing import Preprocessing

VOCABULARY = "caption_vocabulary"
DEFAULT_VOCABULARY_SIZE = 2047
DEFAULT_PCA_UNITS = 1024


def preprocessing_fn(inputs: dict[str, Any], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Maps raw features to `image` and `text` vectors for the encoders; ids, positions and labels pass through.

    If a pair has both a vector and a raw input, the vector is used. The raw input is then only shown in the report.

    Args:
        inputs: `image` or `image_features` [B, Di], or `image_bytes` [B, 1]; `text` or `caption_features` [B, Dt], or
            `caption` [B, 1]; and `id`, `position`, `labels`.
        custom_config: `input_norm` (None disables scaling), `pca_units` (None disables the projection),
            `vocabulary_size`, and `image_features` and `text_features`, names of `cmimh_tf.features.registry`.

    Returns:
        float32 `image` [B, image_units] and `text` [B, text_units], with `id`, `position`, `labels`.
    """
    norm, pca_units, words = (custom_config[name] for name in ("input_norm", "pca_units", "vocabulary_size"))
    image, text = (
        next((inputs[name] for name in names if name in inputs), None)
        for names in ((IMAGE, IMAGE_FEATURES), (TEXT, CAPTION_FEATURES))
    )
    if image is None:
        image = picture_vectors(inputs[IMAGE_BYTES][:, 0], custom_config.get("image_features", DEFAULT_IMAGE_FEATURES))
    if text is None:
        text = caption_vectors(inputs[CAPTION][:, 0], custom_config.get("text_features", DEFAULT_TEXT_FEATURES), words)
    outputs = {IMAGE: fit_vectors(image, norm, pca_units), TEXT: fit_vectors(text, norm, pca_units)}
    outputs.update({name: inputs[name] for name in (ID, POSITION, LABELS) if name in inputs})
    return outputs


def picture_vectors(image_bytes: tf.Tensor, name: str) -> tf.Tensor:
    """string [B] of JPEG, PNG, GIF or BMP -> float32 [B, dim]; an empty string is replaced by a blank picture.

    When only a caption is hashed, tensorflow_transform feeds empty strings here and drops the result.
    """
    blank = tf.io.encode_png(tf.zeros([1, 1, 3], tf.uint8))
    encoded = tf.where(tf.strings.length(image_bytes) > 0, image_bytes, blank)
    return _tracked(name, make_image_features)(encoded)


def caption_vectors(captions: tf.Tensor, name: str, vocabulary_size: int) -> tf.Tensor:
    """string [B] -> float32 [B, dim]."""
    if name == "bag_of_words":
        return bag_of_words(captions, vocabulary_size)
    return _tracked(name, make_text_features)(captions)


def _tracked(name: str, make: Callable[[str], Any]) -> Any:
    """Creates features so that tensorflow_transform saves their weights with the graph."""
    if has_network(name):
        return tft.make_and_track_object(lambda: make(name), name=name.partition(":")[0])
    return make(name)


def bag_of_words(captions: tf.Tensor, vocabulary_size: int) -> tf.Tensor:
    """string [B] -> float32 [B, vocabulary_size + 1]: which of the most frequent training words a caption contains.

    Rows have unit length. The last column is 1 if a caption contains none of these words. If the training captions
    have fewer words than `vocabulary_size`, the remaining columns are 0.
    """
    words = tokenize(captions)
    asset = tft.vocabulary(words, top_k=vocabulary_size, vocab_filename=VOCABULARY)
    columns = tft.apply_vocabulary(words, asset, default_value=vocabulary_size)
    positions = tf.stack([words.value_rowids(), columns.flat_values], axis=1)
    shape = tf.stack([words.nrows(), vocabulary_size + 1])
    counts = tf.scatter_nd(positions, tf.ones_like(columns.flat_values, tf.float32), shape)
    known = tf.minimum(counts[:, :-1], 1.0)
    known = tf.math.divide_no_nan(known, tf.norm(known, axis=1, keepdims=True))
    is_empty = tf.logical_not(tf.reduce_any(known > 0, axis=1, keepdims=True))
    return tf.ensure_shape(tf.concat([known, tf.cast(is_empty, tf.float32)], axis=1), [None, vocabulary_size + 1])


def fit_vectors(vectors: tf.Tensor, input_norm: float | None, pca_units: int | None) -> tf.Tensor:
    """(x - mean) P * scale, where P projects onto the principal components if x is wider than `pca_units`.

    The formula is that of `cmimh_tf.features.projection` and of `FeatureScaler`; Beam computes the statistics.

    Args:
        vectors: [B, width] of a known width.
        input_norm: the root-mean-square norm to scale to; without a projection, None also disables the centring.
        pca_units: the maximum width; None for no limit.

    Returns:
        float32 [B, min(width, pca_units)].
    """
    # Sums over thousands of rows lose digits in float32, and the eigenvectors need them.
    vectors = tf.cast(vectors, tf.float64)
    is_wide = pca_units is not None and vectors.shape[1] > pca_units
    if is_wide:
        vectors = vectors - tft.mean(vectors, reduce_instance_dims=False)
        components = rounded(with_fixed_signs(tft.pca(vectors, output_dim=pca_units, dtype=tf.float64)))
        vectors = tf.matmul(vectors, tf.ensure_shape(components, [vectors.shape[1], pca_units]))
    if input_norm is None and not is_wide:
        return tf.cast(vectors, tf.float32)
    mean = tft.mean(vectors, reduce_instance_dims=False)
    variances = tft.var(vectors, reduce_instance_dims=False)
    return scale_rows(vectors, mean, variances, input_norm, is_projected=is_wide)


class TransformPreprocessing(Preprocessing):
    """The fitted Transform graph as the preprocessing of a served model.

    Clients send the same kind of inputs that Transform was fitted on: vectors, or pictures and captions. If a network
    computes the features of a modality, clients may send these features as vectors. If a modality was fitted on raw
    inputs, they may send transformed vectors, which go to the encoder unchanged.

    Args:
        transform_output: the fitted graph.
        image_features, text_features: names of the networks' features; not needed without networks.
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
        """Computes one output of the graph from one input. The other inputs are blanks and their outputs dropped."""
        return self.transform_layer({name: values})[output]
