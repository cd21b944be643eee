"""Canonical correlation analysis: the directions in which two views of the same items agree most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from cmimh_tf.baselines.hasher import check_pairs

DEFAULT_RIDGE = 1e-3
# A direction below this correlation carries rounding errors: one view hardly varies along it.
_LEAST_CORRELATION = 1e-4


@dataclass(frozen=True)
class CanonicalCorrelation:
    """Paired directions, most correlated first.

    Attributes:
        image_mean: [Di] and
        text_mean: [Dt], the centres of the two views.
        image_directions: [Di, K] and
        text_directions: [Dt, K], one pair of directions a column.
        correlations: [K] regularised correlation of the projections on each pair, in (0, 1).
    """

    image_mean: np.ndarray
    text_mean: np.ndarray
    image_directions: np.ndarray
    text_directions: np.ndarray
    correlations: np.ndarray


@dataclass(frozen=True)
class Covariances:
    """What CCA needs to know of N pairs: the means [D] of both views, and the covariances of and between them."""

    image_mean: np.ndarray
    text_mean: np.ndarray
    image: np.ndarray
    text: np.ndarray
    cross: np.ndarray


def fit_cca(
    image: Any, text: Any, *, max_directions: int | None = None, ridge: float = DEFAULT_RIDGE
) -> CanonicalCorrelation:
    """Solves regularised CCA.

    With the covariances C of the centred views, and Rx = Cxx + ridge * mean(diag Cxx) I, Ry likewise, the
    directions solve the generalised eigenproblem

        Cxy Ry^-1 Cyx w = rho^2 Rx w,    v = Ry^-1 Cyx w / rho,    w' Rx w = v' Ry v = 1.

    It is solved as the singular value decomposition of Lx^-1 Cxy Ly^-T, with Cholesky factors R = L L', which
    does not square the correlations. The ridge is relative to the mean variance, so the scale of either view
    does not matter. Of each pair's two signs the one that makes the largest entry of w positive is taken.

    Args:
        image: [N, Di] features.
        text: [N, Dt] features, paired by row.
        max_directions: the most pairs to return; None for all. There are at most min(Di, Dt, N - 1), and
            pairs without correlation (rank deficient views) are left out.
        ridge: share of the mean variance that is added to every variance.

    Raises:
        ValueError: if `ridge` is not positive, a view does not vary, or the views do not vary together.
    """
    return solve_cca(measure_covariances(*check_pairs(image, text)), max_directions=max_directions, ridge=ridge)


def measure_covariances(image: np.ndarray, text: np.ndarray) -> Covariances:
    """Means and covariances of checked pairs, in float64."""
    image_mean, text_mean = image.mean(axis=0, dtype=np.float64), text.mean(axis=0, dtype=np.float64)
    image_centred, text_centred = image - image_mean, text - text_mean
    return Covariances(
        image_mean,
        text_mean,
        image_centred.T @ image_centred / len(image),
        text_centred.T @ text_centred / len(text),
        image_centred.T @ text_centred / len(image),
    )


def solve_cca(covariances: Covariances, *, max_directions: int | None, ridge: float) -> CanonicalCorrelation:
    """`fit_cca` from covariances, for when several ridges are tried on the same pairs."""
    if not ridge > 0:
        raise ValueError(f"`ridge` must be positive. Received: ridge={ridge}.")
    image_factor = _regularised_factor(covariances.image, ridge)
    text_factor = _regularised_factor(covariances.text, ridge)
    whitened = scipy.linalg.solve_triangular(image_factor, covariances.cross, lower=True)
    whitened = scipy.linalg.solve_triangular(text_factor, whitened.T, lower=True).T
    left, correlations, right = scipy.linalg.svd(whitened, full_matrices=False)

    count = int((correlations > _LEAST_CORRELATION).sum())
    if count == 0:
        raise ValueError(
            "`image` and `text` must be correlated. "
            f"Received: pairs whose largest canonical correlation is {correlations[0]:.2g}."
        )
    count = min(count, max_directions or count)
    image_directions = scipy.linalg.solve_triangular(image_factor, left[:, :count], lower=True, trans="T")
    text_directions = scipy.linalg.solve_triangular(text_factor, right[:count].T, lower=True, trans="T")
    largest = np.abs(image_directions).argmax(axis=0)
    signs = np.sign(image_directions[largest, np.arange(count)])
    return CanonicalCorrelation(
        covariances.image_mean,
        covariances.text_mean,
        image_directions * signs,
        text_directions * signs,
        correlations[:count],
    )


def _regularised_factor(covariance: np.ndarray, ridge: float) -> np.ndarray:
    """Lower Cholesky factor of `covariance` plus `ridge` times its mean variance."""
    regularised = covariance.copy()
    regularised[np.diag_indices_from(regularised)] += ridge * np.trace(covariance) / len(covariance)
    return scipy.linalg.cholesky(regularised, lower=True)
