"""CCA-ITQ: canonical variates, of which each view is rotated on its own towards binary codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.acq import DEFAULT_ROUNDS, procrustes, random_rotation
from cmimh_tf.baselines.cca import DEFAULT_RIDGE
from cmimh_tf.baselines.linear import LinearHash, LinearHasher, to_signs
from cmimh_tf.baselines.ridge import Ridge, fit_cca_with

if TYPE_CHECKING:
    from typing_extensions import Self


class CCAITQ(LinearHasher):
    """Iterative quantisation of each view after CCA.

    For the canonical variates V of a view, each column weighted by its correlation, it minimises

        ||B - V R||^2    over B in {-1, 1} and R R' = I.

    `ACQ` looks for one B for both views. Here each view has its own, and the only things that keep the codes
    of a pair alike are that their variates are, and that both rotations start from the same one.

    Where `code_length` exceeds the number of variates, R has orthonormal rows, as in `ACQ`.

    Reference: Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to Learning Binary Codes",
    CVPR 2011.

    Args:
        code_length: number of bits, a positive multiple of 8.
        ridge: regularisation of CCA, relative to the mean variance of a view, or "auto": see `choose_ridge`.
        rounds: number of alternations.
        seed: of the first rotation, and of the pairs held out for "auto".
    """

    def __init__(
        self, code_length: int, *, ridge: Ridge = DEFAULT_RIDGE, rounds: int = DEFAULT_ROUNDS, seed: int = 0
    ) -> None:
        super().__init__(code_length, seed=seed)
        if rounds < 0:
            raise ValueError(f"`rounds` must not be negative. Received: rounds={rounds}.")
        self.ridge = ridge
        self.rounds = rounds

    def fit(self, image: Any, text: Any) -> Self:
        cca = fit_cca_with(self.ridge, image, text, max_directions=self.code_length, seed=self.seed)
        rotation = random_rotation(len(cca.correlations), self.code_length, self.seed)
        self._image_hash, self._text_hash = (
            _rotate(LinearHash(mean, directions * cca.correlations), np.asarray(view), rotation, self.rounds)
            for mean, directions, view in (
                (cca.image_mean, cca.image_directions, image),
                (cca.text_mean, cca.text_directions, text),
            )
        )
        return self


def iterative_quantisation(variates: np.ndarray, rotation: np.ndarray, *, rounds: int) -> np.ndarray:
    """Minimises ||B - V R||^2 by turns over the codes B and the rotation R; the value never rises.

    Args:
        variates: V, [N, K].
        rotation: [K, L] with orthonormal rows, where R starts.
        rounds: number of alternations.

    Returns:
        R, [K, L].
    """
    for _ in range(rounds):
        codes = to_signs(variates @ rotation)
        rotation = procrustes(variates, codes)
    return rotation


def _rotate(variates: LinearHash, features: np.ndarray, rotation: np.ndarray, rounds: int) -> LinearHash:
    rotation = iterative_quantisation(variates.project(features), rotation, rounds=rounds)
    return LinearHash(variates.offset, variates.directions @ rotation)
