"""Random projections: what codes are worth that know nothing of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.hasher import check_pairs
from cmimh_tf.baselines.linear import LinearHash, LinearHasher

if TYPE_CHECKING:
    from typing_extensions import Self


class RandomProjections(LinearHasher):
    """Signs of Gaussian random projections of each view around its training mean.

    Within a view the Hamming distance estimates the angle between items. The projections of the two views have
    nothing to do with each other, so that across views the codes are at chance: a floor for the cross-modal
    tasks. Any `code_length` is possible.

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
