"""Hashers whose bits are the signs of linear projections, with one matrix per modality; the simplest are random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.hasher import Hasher, check_fitted, check_pairs, check_width
from cmimh_tf.codes import pack_bits

if TYPE_CHECKING:
    from typing_extensions import Self


# Rows are projected in blocks to bound the memory.
_BLOCK_ROWS = 8192


@dataclass(frozen=True)
class LinearHash:
    """Bit l of x is 1 where (x - offset) . directions[:, l] >= 0.

    Attributes:
        offset: [D] point that is projected to 0.
        directions: [D, L] one direction per bit.
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
    """A hasher whose `fit` sets one `LinearHash` per modality."""

    _image_hash: LinearHash | None = None
    _text_hash: LinearHash | None = None

    def hash_images(self, image: Any) -> np.ndarray:
        return check_fitted(self._image_hash).hash(image, "image")

    def hash_texts(self, text: Any) -> np.ndarray:
        return check_fitted(self._text_hash).hash(text, "text")


class RandomProjections(LinearHasher):
    """Signs of Gaussian random projections of each view around its training mean.

    Within a view the Hamming distance estimates the angle between items. The projections of the two views are
    independent, so across views the codes are at chance: a floor for the cross-modal tasks. Any `code_length`
    is possible.

    Reference: Charikar, "Similarity Estimation Techniques from Rounding Algorithms", STOC 2002.

    Args:
        code_length: number of bits, a positive multiple of 8.
        seed: of the projections.
    """

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        random = np.random.default_rng(self.seed)
        self._image_hash, self._text_hash = (
            LinearHash(view.mean(axis=0, dtype=np.float64), random.standard_normal((view.shape[1], self.code_length)))
            for view in (image, text)
        )
        return self
