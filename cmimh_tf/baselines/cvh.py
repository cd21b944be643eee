"""CVH: the signs of canonical variates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.cca import DEFAULT_RIDGE
from cmimh_tf.baselines.linear import LinearHash, LinearHasher
from cmimh_tf.baselines.ridge import Ridge, fit_cca_with

if TYPE_CHECKING:
    from typing_extensions import Self


class CVH(LinearHasher):
    """Cross-view hashing, which for two views is canonical correlation analysis and a sign.

    Bit l of an item is 1 where its projection on the l-th canonical direction of its view is at or above the
    training mean.

    There are K canonical directions, at most the width of the narrower view. Where `code_length` is larger,
    the further bits are signs of random combinations of all K variates, each weighted by its correlation;
    both views take the same combinations, so that these bits can be compared as well.

    Reference: Kumar and Udupa, "Learning Hash Functions for Cross-View Similarity Search", IJCAI 2011.

    Args:
        code_length: number of bits, a positive multiple of 8.
        ridge: regularisation of CCA, relative to the mean variance of a view, or "auto": see `choose_ridge`.
        seed: of the random combinations where K does not suffice, and of the pairs held out for "auto".
    """

    def __init__(self, code_length: int, *, ridge: Ridge = DEFAULT_RIDGE, seed: int = 0) -> None:
        super().__init__(code_length, seed=seed)
        self.ridge = ridge

    def fit(self, image: Any, text: Any) -> Self:
        cca = fit_cca_with(self.ridge, image, text, max_directions=self.code_length, seed=self.seed)
        num_directions = len(cca.correlations)
        random = np.random.default_rng(self.seed)
        mixtures = random.standard_normal((num_directions, self.code_length - num_directions))
        combinations = np.hstack([np.eye(num_directions), cca.correlations[:, np.newaxis] * mixtures])
        self._image_hash = LinearHash(cca.image_mean, cca.image_directions @ combinations)
        self._text_hash = LinearHash(cca.text_mean, cca.text_directions @ combinations)
        return self
