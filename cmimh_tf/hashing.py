"""Features to packed codes that do not depend on how many rows are hashed together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from cmimh_tf.codes import pack_bits

BLOCK_ROWS = 4096

# Matrix products of different batch sizes round differently: float32 logits were seen to differ by 1e-6. A row with a
# logit closer to 0 than this is encoded again in float64, about one row in a thousand.
MARGIN = 2.0**-15


def settled_logits(encode: Callable[[tf.Tensor], tf.Tensor], features: tf.Tensor) -> tf.Tensor:
    """The logits of `features`, with signs that do not depend on the batch.

    Rows with a logit too close to 0 for float32 are encoded again in float64. A code is then a property of the item:
    equal whether it was hashed alone or in a block, in eager mode or in a SavedModel. In float64 a sign is still
    uncertain with a probability of about 1e-14 per bit.

    Args:
        encode: the encoder, [rows, units] -> [rows, code_length] in the dtype of its input.
        features: float32 [rows, units] tensor.

    Returns:
        float32 [rows, code_length] tensor.
    """
    logits = encode(features)
    near = tf.reduce_any(tf.abs(logits) < MARGIN, axis=1)

    def encode_again() -> tf.Tensor:
        rows = tf.where(near)
        again = encode(tf.cast(tf.gather_nd(features, rows), tf.float64))
        return tf.tensor_scatter_nd_update(logits, rows, tf.cast(again, tf.float32))

    return tf.cond(tf.reduce_any(near), encode_again, lambda: logits)


def hash_in_blocks(
    logits: Callable[[tf.Tensor], tf.Tensor], features: np.ndarray, units: int, code_length: int, name: str
) -> np.ndarray:
    """Packed codes: bit 1 where mu >= 0.5, that is where the logit is at least 0.

    Only one block of rows is converted and held at a time, so that `features` may be a memory map.

    Args:
        logits: [rows, units] -> [rows, code_length].
        features: [rows, units] array.
        units: the width of the features.
        code_length: the number of bits.
        name: the name of the features in error messages.

    Returns:
        uint8 [rows, code_length / 8].

    Raises:
        ValueError: for a wrong shape, or a value that is not finite, with its row.
    """
    if getattr(features, "ndim", None) != 2 or features.shape[1] != units:
        raise ValueError(f"`{name}` must have shape [rows, {units}]. Received: {getattr(features, 'shape', features)}.")
    codes = np.empty((len(features), code_length // 8), np.uint8)
    for start in range(0, len(features), BLOCK_ROWS):
        block = np.asarray(features[start : start + BLOCK_ROWS], np.float32)
        _check_finite(block, start, f"`{name}` must be finite. Received: row {{}} with NaN or infinite values.")
        values = logits(tf.constant(block)).numpy()
        _check_finite(
            values, start, f"The model must be finite. Received: NaN logits for row {{}} of `{name}`, which is finite."
        )
        codes[start : start + len(block)] = pack_bits(values >= 0)
    return codes


def _check_finite(values: np.ndarray, first_row: int, message: str) -> None:
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise ValueError(message.format(first_row + int(np.argmin(finite))))
