"""Hashers whose bits are the signs of linear projections, one matrix a modality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.baselines.hasher import Hasher, check_fitted, check_width
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
        features = check_width(features, self.directions.shape[0], name)
        codes = np.empty((len(features), self.directions.shape[1] // 8), np.uint8)
        for start in range(0, len(features), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            codes[block] = pack_bits(self.project(features[block]) >= 0)
        return codes


def to_signs(projections: np.ndarray) -> np.ndarray:
    """Bits as numbers to compute with: 1.0 where a bit is 1, at or above 0, and -1.0 where it is 0."""
    return np.where(projections >= 0, 1.0, -1.0)


class LinearHasher(Hasher):
    """A hasher whose `fit` sets one `LinearHash` a modality."""

    _image_hash: LinearHash | None = None
    _text_hash: LinearHash | None = None

    def hash_images(self, image: Any) -> np.ndarray:
        return check_fitted(self._image_hash).hash(image, "image")

    def hash_texts(self, text: Any) -> np.ndarray:
        return check_fitted(self._text_hash).hash(text, "text")
