"""Features of any number of rows to packed codes, block by block."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from cmimh_tf.ops.hamming import pack_bits

BLOCK_ROWS = 4096


def hash_in_blocks(
    logits: Callable[[tf.Tensor], tf.Tensor], features: np.ndarray, units: int, code_length: int, name: str
) -> np.ndarray:
    """Packed codes: bit 1 where mu >= 0.5, that is where the logit is at least 0.

    Only one block of rows is converted and held at a time, so that `features` may be a memory map.

    Args:
        logits: the encoder, [rows, units] -> [rows, code_length].
        features: [rows, units] array.
        units: the width that the encoder takes.
        code_length: the number of bits.
        name: what the features are called in an error.

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
        values = logits(tf.constant(block)).numpy()
        finite = np.isfinite(values).all(axis=1)
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise ValueError(f"`{name}` must be finite. Received: row {row} with NaN or infinite values.")
        codes[start : start + len(block)] = pack_bits(values >= 0)
    return codes
