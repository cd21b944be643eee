"""What the Transform component fits on the training pairs and what serving repeats, in one graph.

    pictures   decoded, then `describe_pictures`          captions   tokenised, then a bag of words
    vectors    as they are

and then, for each modality: centred, projected on the first principal components where it is wider than the limit,
and scaled so that the training rows have a root-mean-square norm of `input_norm`.
"""

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from cmimh_tf.features import DESCRIPTOR_DIM, describe_pictures, tokenize
from pipeline.features import CAPTION, ID, IMAGE, IMAGE_BYTES, LABELS, POSITION, TEXT

VOCABULARY = "caption_vocabulary"
DEFAULT_VOCABULARY_SIZE = 2047
DEFAULT_PCA_UNITS = 1024

_PICTURE_SIZE = 64
# A principal component whose share of the variance is below this is rounding error.
_LEAST_VARIANCE_SHARE = 1e-10


def preprocessing_fn(inputs: dict[str, Any], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """Maps raw features to `image` and `text` vectors for the encoders; the rest goes through.

    Vectors win over raw inputs: a caption beside `text` is only there to be shown.

    Args:
        inputs: `image` [B, Di] or `image_bytes` [B, 1], `text` [B, Dt] or `caption` [B, 1], and `id`, `position`,
            `labels`.
        custom_config: `input_norm` (None leaves vectors as they are), `pca_units` (None never projects) and
            `vocabulary_size`.

    Returns:
        float32 `image` [B, image_units] and `text` [B, text_units], with `id`, `position`, `labels`.
    """
    norm, pca_units, words = (custom_config[name] for name in ("input_norm", "pca_units", "vocabulary_size"))
    image = inputs[IMAGE] if IMAGE in inputs else describe_encoded_pictures(inputs[IMAGE_BYTES][:, 0])
    text = inputs[TEXT] if TEXT in inputs else bag_of_words(inputs[CAPTION][:, 0], words)
    outputs = {IMAGE: fit_vectors(image, norm, pca_units), TEXT: fit_vectors(text, norm, pca_units)}
    outputs.update({name: inputs[name] for name in (ID, POSITION, LABELS) if name in inputs})
    return outputs


def describe_encoded_pictures(image_bytes: tf.Tensor) -> tf.Tensor:
    """string [B] of JPEG, PNG, GIF or BMP -> float32 [B, DESCRIPTOR_DIM]; an empty string counts as a blank picture.

    When only a caption is to be hashed, tensorflow_transform feeds empty strings here and drops what becomes of them.
    """
    blank = tf.io.encode_png(tf.zeros([1, 1, 3], tf.uint8))

    def decode(encoded: tf.Tensor) -> tf.Tensor:
        encoded = tf.where(tf.strings.length(encoded) > 0, encoded, blank)
        picture = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        picture.set_shape([None, None, 3])
        # One at a time, as pictures differ in size. This is the first step of the descriptor, which then finds
        # nothing left to resize.
        values = tf.cast(picture, tf.float32) / 255.0
        return tf.image.resize(values, [_PICTURE_SIZE, _PICTURE_SIZE], antialias=True)

    signature = tf.TensorSpec([_PICTURE_SIZE, _PICTURE_SIZE, 3], tf.float32)
    pictures = tf.map_fn(decode, image_bytes, fn_output_signature=signature)
    return tf.ensure_shape(describe_pictures(pictures), [None, DESCRIPTOR_DIM])


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

    The scale is input_norm / sqrt(sum of the variances of the training rows), the formula of `FeatureScaler`: the
    mean squared norm of centred rows is the sum of their variances.

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
        components = _with_fixed_signs(tft.pca(vectors, output_dim=pca_units, dtype=tf.float64))
        vectors = tf.matmul(vectors, tf.ensure_shape(components, [vectors.shape[1], pca_units]))
    if input_norm is None and not is_wide:
        return tf.cast(vectors, tf.float32)
    mean, variances = _moments(vectors)
    total = tf.reduce_sum(variances)
    if input_norm is not None:
        vectors = (vectors - mean) * (input_norm * tf.math.rsqrt(total))
    if is_wide:
        # With fewer rows than components the last ones are arbitrary: 0 on all training rows, and noise on others.
        vectors = vectors * tf.cast(variances > _LEAST_VARIANCE_SHARE * total, tf.float64)
    return tf.cast(vectors, tf.float32)


def _moments(vectors: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mean and variance of each column over the training rows."""
    return tft.mean(vectors, reduce_instance_dims=False), tft.var(vectors, reduce_instance_dims=False)


def _with_fixed_signs(components: tf.Tensor) -> tf.Tensor:
    """Columns turned so that their largest entry is positive: eigenvectors have no sign of their own."""
    rows = tf.argmax(tf.abs(components), axis=0)
    largest = tf.gather(tf.transpose(components), rows, batch_dims=1)
    return components * tf.where(largest < 0, tf.cast(-1.0, components.dtype), tf.cast(1.0, components.dtype))
