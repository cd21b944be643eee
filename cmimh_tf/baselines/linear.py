"""Hashers whose bits are the signs of linear projections, one matrix a modality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.baselines.hasher import Hasher, check_features
from cmimh_tf.ops.hamming import pack_bits

# Rows are projected in blocks, so that memory does not grow with the number of rows.
_BLOCK_ROWS = 8192


@dataclass(frozen=True)
class LinearHash:
    """Bit l of x is 1 where (x - offset) . directions[:, l] >= 0.

    Attributes:
        offset: [D] point that is projected to 0.
        directions: [D, L] one direction a bit.
    """

    offset: np.ndarray
    directions: np.ndarray

    def project(self, features: np.ndarray) -> np.ndarray:
        """Signed projections, float64 [N, L], of features [N, D]."""
        return (features - self.offset) @ self.directions

    def hash(self, features: Any, name: str) -> np.ndarray:
        """Packed codes, uint8 [N, L/8], of features [N, D]; `name` is the argument's name, for messages."""
        features = check_features(features, name)
        width, code_length = self.directions.shape
        if features.shape[1] != width:
            raise ValueError(
                f"`{name}` must have as many columns as in `fit`, {width}. Received: {name}.shape={features.shape}."
            )
        codes = np.empty((len(features), code_length // 8), np.uint8)
        for start in range(0, len(features), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            codes[block] = pack_bits(self.project(features[block]) >= 0)
        return codes


class LinearHasher(Hasher):
    """A hasher whose `fit` sets one `LinearHash` a modality."""

    _image_hash: LinearHash | None = None
    _text_hash: LinearHash | None = None

    def hash_images(self, image: Any) -> np.ndarray:
        return _fitted(self._image_hash).hash(image, "image")

    def hash_texts(self, text: Any) -> np.ndarray:
        return _fitted(self._text_hash).hash(text, "text")


def _fitted(linear_hash: LinearHash | None) -> LinearHash:
    if linear_hash is None:
        raise RuntimeError("`fit` must be called before a hasher can hash.")
    return linear_hash
