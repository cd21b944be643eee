"""CVH, ACQ and CCA-ITQ: the signs of canonical variates, as they are or rotated towards binary codes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from cmimh_tf.baselines.cca import DEFAULT_RIDGE, Ridge, fit_cca_with
from cmimh_tf.baselines.linear import LinearHash, LinearHasher, to_signs

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_ROUNDS = 50


class CVH(LinearHasher):
    """Cross-view hashing, which for two views is canonical correlation analysis and a sign.

    Bit l of an item is 1 where its projection on the l-th canonical direction of its view is at or above the
    training mean.

    There are K canonical directions, at most the width of the narrower view. Where `code_length` is larger,
    the further bits are signs of random combinations of all K variates, each weighted by its correlation;
    both views use the same combinations, so these bits are comparable too.

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


class RotatedVariates(LinearHasher):
    """CCA with each variate weighted by its correlation, followed by the rotations of a subclass.

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


class ACQ(RotatedVariates):
    """Alternating co-quantisation on canonical variates.

    With the variates X and Y of the two views, each column weighted by its correlation, it finds common
    codes B and rotations R and S that

        minimise ||B - X R||^2 + ||B - Y S||^2    over B in {-1, 1}, R R' = I, S S' = I.

    Reference: Irie, Arai and Taniguchi, "Alternating Co-Quantization for Cross-modal Hashing", ICCV 2015. The
    weights by correlation are those of Gong et al., "A Multi-View Embedding Space for Modeling Internet
    Images, Tags, and Their Semantics", IJCV 2014.
    """

    def _rotations(
        self, image_variates: np.ndarray, text_variates: np.ndarray, rotation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return alternate_rotations(image_variates, text_variates, rotation, rounds=self.rounds)


def alternate_rotations(
    image_variates: np.ndarray, text_variates: np.ndarray, rotation: np.ndarray, *, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Minimises the objective of `ACQ`, alternating between the codes and the rotations.

    Each step is the exact minimum over its own variable, so the objective never rises.

    Args:
        image_variates: [N, K] projections of images.
        text_variates: [N, K] projections of texts, paired by row.
        rotation: [K, L] with orthonormal rows, where both rotations start.
        rounds: number of alternations.

    Returns:
        The rotation of the images and the one of the texts, [K, L] each.
    """
    image_rotation = text_rotation = rotation
    for _ in range(rounds):
        consensus = image_variates @ image_rotation + text_variates @ text_rotation
        codes = to_signs(consensus)
        image_rotation = procrustes(image_variates, codes)
        text_rotation = procrustes(text_variates, codes)
    return image_rotation, text_rotation


class CCAITQ(RotatedVariates):
    """Iterative quantisation of each view after CCA.

    For the canonical variates V of a view, each column weighted by its correlation, it minimises

        ||B - V R||^2    over B in {-1, 1} and R R' = I.

    `ACQ` finds one B for both views. Here each view has its own. The codes of a pair are alike only because
    their variates are, and because both rotations start from the same one.

    Reference: Gong and Lazebnik, "Iterative Quantization: A Procrustean Approach to Learning Binary Codes",
    CVPR 2011.
    """

    def _rotations(
        self, image_variates: np.ndarray, text_variates: np.ndarray, rotation: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        return (
            iterative_quantisation(image_variates, rotation, rounds=self.rounds),
            iterative_quantisation(text_variates, rotation, rounds=self.rounds),
        )


def iterative_quantisation(variates: np.ndarray, rotation: np.ndarray, *, rounds: int) -> np.ndarray:
    """Minimises ||B - V R||^2 alternating between the codes B and the rotation R; the value never rises.

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
