"""Signs of logits that do not depend on how many rows were encoded together."""

import tensorflow as tf

from cmimh_tf.models.encoder import Encoder
from cmimh_tf.models.feature_scaler import FeatureScaler

# Matrix products of different batch sizes round differently: float32 logits were seen to differ by 1e-6. Whoever is
# nearer to 0 than this is encoded again in float64, about one row in a thousand.
MARGIN = 2.0**-15


def settle_signs(logits: tf.Tensor, features: tf.Tensor, scaler: FeatureScaler, encoder: Encoder) -> tf.Tensor:
    """The logits, with those rows encoded in float64 that hold a value too near to 0 for float32 to tell its sign.

    A code is then a property of the item: equal whether it was hashed alone or in a block, in eager mode or in a
    SavedModel. Float64 leaves a chance of about 1e-14 a bit.

    Args:
        logits: [rows, code_length], `encoder(scaler(features))`.
        features: float32 [rows, dimensions].
        scaler: the fitted scaler.
        encoder: the encoder.

    Returns:
        float32 [rows, code_length].
    """
    near = tf.reduce_any(tf.abs(logits) < MARGIN, axis=1)

    def encode_again() -> tf.Tensor:
        rows = tf.where(near)
        again = _encode_in_float64(tf.gather_nd(features, rows), scaler, encoder)
        return tf.tensor_scatter_nd_update(logits, rows, tf.cast(again, tf.float32))

    return tf.cond(tf.reduce_any(near), encode_again, lambda: logits)


def _encode_in_float64(features: tf.Tensor, scaler: FeatureScaler, encoder: Encoder) -> tf.Tensor:
    values = (_double(features) - _double(scaler.mean)) * _double(scaler.scale)
    *hidden, last = encoder.denses
    for dense in hidden:
        values = tf.nn.relu(tf.matmul(values, _double(dense.kernel)) + _double(dense.bias))
    values = tf.matmul(values, _double(last.kernel)) + _double(last.bias)
    if encoder.logit_limit is None:
        return values
    return tf.clip_by_value(values, -encoder.logit_limit, encoder.logit_limit)


def _double(values: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.convert_to_tensor(values), tf.float64)
