"""PDH: bits that a large-margin classifier can predict from either view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.optimize

from cmimh_tf.baselines.cca import DEFAULT_RIDGE
from cmimh_tf.baselines.cca_hashers import CVH
from cmimh_tf.baselines.hasher import CentredView, check_pairs
from cmimh_tf.baselines.linear import LinearHash, LinearHasher, to_signs
from cmimh_tf.codes import unpack_codes
from cmimh_tf.progress import track

if TYPE_CHECKING:
    from typing_extensions import Self


DEFAULT_COST = 0.1
DEFAULT_ROUNDS = 5
# Singular values below this share of the largest are rounding errors of a rank deficient view.
_LEAST_SINGULAR_VALUE = 1e-6
# The objective of a machine is at most num_rows * cost, its value at 0; this is relative to that.
_GRADIENT_TOLERANCE = 1e-6


class PDH(LinearHasher):
    """Predictable dual-view hashing.

    The bits of the texts start as those of `CVH`. In each round, for each bit,

        a linear SVM on the images learns the bit of the texts, and its predictions become the images' bit;
        a linear SVM on the texts learns the bit of the images;

    and between rounds the margins of the texts are decorrelated across bits (`decorrelate`) before their signs
    are the texts' bits again. The last machines of each view are its hash functions. They have no bias: each
    plane passes through the training mean of its view, which keeps bits about balanced.

    A `code_length` above the width of the narrower view is possible: CVH then starts the further bits from
    random combinations of variates, and bits are decorrelated as far as the rank of the margins allows.

    Reference: Rastegari, Choi, Fakhraei, Daume and Davis, "Predictable Dual-View Hashing", ICML 2013.

    Args:
        code_length: number of bits, a positive multiple of 8.
        cost: of a squared violation of the margin, with features of unit root-mean-square norm.
        rounds: number of alternations.
        ridge: of the CCA that the bits start from.
        seed: of the random combinations; without effect where there are enough canonical directions.
    """

    def __init__(
        self,
        code_length: int,
        *,
        cost: float = DEFAULT_COST,
        rounds: int = DEFAULT_ROUNDS,
        ridge: float = DEFAULT_RIDGE,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        if not cost > 0:
            raise ValueError(f"`cost` must be positive. Received: cost={cost}.")
        if rounds < 1:
            raise ValueError(f"`rounds` must be at least 1. Received: rounds={rounds}.")
        self.cost = cost
        self.rounds = rounds
        self.ridge = ridge

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        start = CVH(self.code_length, ridge=self.ridge, seed=self.seed).fit(image, text)
        text_signs = unpack_codes(start.hash_texts(text)) * 2.0 - 1
        image_view, text_view = CentredView.fit(image), CentredView.fit(text)
        image_rows, text_rows = image_view(image), text_view(text)
        image_weights, text_weights = (np.zeros((view.shape[1], self.code_length)) for view in (image, text))
        for _ in track(range(self.rounds), self.rounds, "PDH", "rounds"):
            image_weights = fit_linear_svms(image_rows, text_signs, cost=self.cost, start=image_weights)
            image_signs = to_signs(image_rows @ image_weights)
            text_weights = fit_linear_svms(text_rows, image_signs, cost=self.cost, start=text_weights)
            text_signs = to_signs(decorrelate(text_rows @ text_weights))
        self._image_hash = LinearHash(image_view.mean, image_weights)
        self._text_hash = LinearHash(text_view.mean, text_weights)
        return self


def decorrelate(margins: np.ndarray) -> np.ndarray:
    """The uncorrelated variables that are nearest to given ones.

    With the columns of M centred and of unit norm, it is the matrix Q with Q'Q = I that minimises ||Q - M||^2:
    Q = U V' from the singular value decomposition U S V' of M. Unlike eigenvectors, column l of Q still stands
    for column l of M. Where M has rank K below its number of columns, Q'Q is a projection of rank K instead.

    Args:
        margins: [N, L].

    Returns:
        [N, L] of unit variance and, where the rank allows it, without correlation.
    """
    centred = margins - margins.mean(axis=0)
    # A column that does not vary stays 0.
    norms = np.linalg.norm(centred, axis=0)
    left, values, right = scipy.linalg.svd(centred / np.where(norms > 0, norms, 1), full_matrices=False)
    kept = values > _LEAST_SINGULAR_VALUE * max(values[0], np.finfo(float).tiny)
    return np.sqrt(len(margins)) * left[:, kept] @ right[kept]


def fit_linear_svms(
    features: np.ndarray,
    signs: np.ndarray,
    *,
    cost: float,
    start: np.ndarray,
    max_iterations: int = 100,
) -> np.ndarray:
    """Minimises, for each column y of `signs` on its own,

        ||w||^2 / 2 + cost * sum over rows n of max(0, 1 - y_n x_n . w)^2.

    The squared hinge is smooth, so one L-BFGS in the primal solves all columns together; each step needs two
    matrix products.

    Args:
        features: [N, D], centred: the machines have no bias.
        signs: [N, L] of -1 and 1.
        cost: of a squared violation of the margin.
        start: [D, L] where to start. The minimum does not depend on it.
        max_iterations: of L-BFGS.

    Returns:
        [D, L] one weight vector per column.
    """
    shape = features.shape[1], signs.shape[1]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(shape)
        violations = np.maximum(0, 1 - signs * (features @ weights))
        value = 0.5 * (weights**2).sum() + cost * (violations**2).sum()
        gradient = weights - 2 * cost * (features.T @ (signs * violations))
        return value, gradient.ravel()

    scale = cost * len(features)
    result = scipy.optimize.minimize(
        lambda flat: tuple(part / scale for part in objective(flat)),
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iterations, "gtol": _GRADIENT_TOLERANCE, "ftol": 0},
    )
    return result.x.reshape(shape)
