"""Hashers that rotate canonical variates, so that little is lost when only their signs are kept."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from cmimh_tf.baselines.cca import DEFAULT_RIDGE
from cmimh_tf.baselines.linear import LinearHash, LinearHasher
from cmimh_tf.baselines.ridge import Ridge, fit_cca_with

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_ROUNDS = 50


class RotatedVariates(LinearHasher):
    """CCA, each variate weighted by its correlation, then the rotations that a subclass finds.

    There are K variates, at most the width of the narrower view. Where `code_length` L is larger, the rotations are
    [K, L] with orthonormal rows: the same as rotating variates that were padded to L columns with zeros.

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
        image_variates = LinearHash(cca.image_mean, cca.image_directions * cca.correlations)
        text_variates = LinearHash(cca.text_mean, cca.text_directions * cca.correlations)
        image_rotation, text_rotation = self._rotations(
            image_variates.project(np.asarray(image)),
            text_variates.project(np.asarray(text)),
            random_rotation(len(cca.correlations), self.code_length, self.seed),
        )
        self._image_hash = LinearHash(cca.image_mean, image_variates.directions @ image_rotation)
        self._text_hash = LinearHash(cca.text_mean, text_variates.directions @ text_rotation)
        return self

    @abstractmethod
    def _rotations(
        self, image_variates: np.ndarray, text_variates: np.ndarray, rotation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rotations of images and of texts, [K, L] each, of variates [N, K], both starting from `rotation`."""


def procrustes(variates: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The [K, L] matrix R with R R' = I, K <= L, that minimises ||codes - variates R||^2.

    As ||variates R|| is the same for every such R, it maximises tr(R' variates' codes): R = U V' from the
    singular value decomposition U S V' of variates' codes.
    """
    left, _, right = scipy.linalg.svd(variates.T @ codes, full_matrices=False)
    return left @ right


def random_rotation(num_rows: int, num_columns: int, seed: int) -> np.ndarray:
    """A uniformly random [num_rows, num_columns] matrix with orthonormal rows, num_rows <= num_columns."""
    gaussian = np.random.default_rng(seed).standard_normal((num_columns, num_rows))
    orthogonal, triangular = scipy.linalg.qr(gaussian, mode="economic")
    # The signs make the decomposition unique, and by that the distribution uniform.
    return (orthogonal * np.sign(np.diag(triangular))).T
