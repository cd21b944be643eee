"""What the Transform component fits on the training pairs and what serving repeats, in one graph.

    pictures   decoded, then `descriptor`                 captions   a bag of words, or tags of a fixed vocabulary
    vectors    as they are, as are the features that a network made of pictures and captions before

and then, for each modality: centred, projected on the first principal components where it is wider than the limit,
and scaled so that the training rows have a root-mean-square norm of `input_norm`.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from cmimh_tf.features import make_image_features, make_text_features, tokenize
from cmimh_tf.features.projection import scale_rows, with_fixed_signs
from cmimh_tf.features.registry import EMOJI_IMAGE_FEATURES, EMOJI_TEXT_FEATURES, has_network
from pipeline.features import CAPTION, CAPTION_FEATURES, ID, IMAGE, IMAGE_BYTES, IMAGE_FEATURES, LABELS, POSITION, TEXT

VOCABULARY = "caption_vocabulary"
DEFAULT_VOCABULARY_SIZE = 2047
DEFAULT_PCA_UNITS = 1024


def preprocessing_fn(inputs: dict[str, Any], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Maps raw features to `image` and `text` vectors for the encoders; the rest goes through.

    Vectors win over raw inputs: a caption beside `text` is only there to be shown.

    Args:
        inputs: `image` or `image_features` [B, Di], or `image_bytes` [B, 1]; `text` or `caption_features` [B, Dt], or
            `caption` [B, 1]; and `id`, `position`, `labels`.
        custom_config: `input_norm` (None leaves vectors as they are), `pca_units` (None never projects),
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
        image = picture_vectors(inputs[IMAGE_BYTES][:, 0], custom_config.get("image_features", EMOJI_IMAGE_FEATURES))
    if text is None:
        text = caption_vectors(inputs[CAPTION][:, 0], custom_config.get("text_features", EMOJI_TEXT_FEATURES), words)
    outputs = {IMAGE: fit_vectors(image, norm, pca_units), TEXT: fit_vectors(text, norm, pca_units)}
    outputs.update({name: inputs[name] for name in (ID, POSITION, LABELS) if name in inputs})
    return outputs


def picture_vectors(image_bytes: tf.Tensor, name: str) -> tf.Tensor:
    """string [B] of JPEG, PNG, GIF or BMP -> float32 [B, dim]; an empty string counts as a blank picture.

    When only a caption is to be hashed, tensorflow_transform feeds empty strings here and drops what becomes of them.
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
    """Features whose weights tensorflow_transform saves with the graph. Those without weights are made in the graph."""
    if has_network(name):
        return tft.make_and_track_object(lambda: make(name), name=name.partition(":")[0])
    return make(name)


def bag_of_words(captions: tf.Tensor, vocabulary_size: int) -> tf.Tensor:
    """string [B] -> float32 [B, vocabulary_size + 1]: which of the commonest training words a caption holds.

    Rows have unit length. The last column is 1 where a caption has none of these words; columns of words that do not
    exist stay 0.
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
    """(x - mean) P * scale, with P the principal components where x is wider than `pca_units`, else the identity.

    The formula is that of `cmimh_tf.features.projection`, and of `FeatureScaler`; the numbers come from Beam.

    Args:
        vectors: [B, width] of a known width.
        input_norm: the root-mean-square norm to reach; None neither centres nor scales, unless there is a projection.
        pca_units: the widest that vectors may be; None for no limit.

    Returns:
        float32 [B, min(width, pca_units)].
    """
    # Sums over thousands of rows lose digits in float32, and the eigenvectors need them.
    vectors = tf.cast(vectors, tf.float64)
    is_wide = pca_units is not None and vectors.shape[1] > pca_units
    if is_wide:
        vectors = vectors - tft.mean(vectors, reduce_instance_dims=False)
        components = with_fixed_signs(tft.pca(vectors, output_dim=pca_units, dtype=tf.float64))
        vectors = tf.matmul(vectors, tf.ensure_shape(components, [vectors.shape[1], pca_units]))
    if input_norm is None and not is_wide:
        return tf.cast(vectors, tf.float32)
    mean = tft.mean(vectors, reduce_instance_dims=False)
    variances = tft.var(vectors, reduce_instance_dims=False)
    return scale_rows(vectors, mean, variances, input_norm, is_projected=is_wide)
