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
# A positive number, relative to the mean variance of a view, or "auto".
Ridge = float | str
# Half decades: 0.001, 0.00316, ... 31.6, 100.
RIDGE_GRID = tuple(float(ridge) for ridge in np.logspace(-3, 2, 11))
_HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class CanonicalCorrelation:
    """Paired directions, most correlated first.

    Attributes:
        image_mean: [Di] and
        text_mean: [Dt], the centres of the two views.
        image_directions: [Di, K] and
        text_directions: [Dt, K], one pair of directions per column.
        correlations: [K] regularised correlation of the projections on each pair, in (0, 1).
    """

    image_mean: np.ndarray
    text_mean: np.ndarray
    image_directions: np.ndarray
    text_directions: np.ndarray
    correlations: np.ndarray


@dataclass(frozen=True)
class Covariances:
    """The input of CCA for N pairs: the means [D] of both views, and the covariances within and between them."""

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
    does not matter. The sign of each pair makes the largest entry of w positive.

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
    """`fit_cca` from covariances, to try several ridges on the same pairs."""
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


def fit_cca_with(ridge: Ridge, image: Any, text: Any, *, max_directions: int, seed: int) -> CanonicalCorrelation:
    """`fit_cca` with a given ridge, or with the one of `choose_ridge` if it is "auto"."""
    if isinstance(ridge, str):
        if ridge != "auto":
            raise ValueError(f'`ridge` must be a positive number or "auto". Received: ridge={ridge!r}.')
        ridge = choose_ridge(image, text, max_directions=max_directions, seed=seed)
    return fit_cca(image, text, max_directions=max_directions, ridge=ridge)


def choose_ridge(image: Any, text: Any, *, max_directions: int, seed: int) -> float:
    """The ridge of `RIDGE_GRID` whose canonical variates agree best on held-out pairs.

    A fifth of the pairs is held out. For each ridge, CCA is fitted on the others, and scored by the sum, over
    the leading `max_directions` pairs of directions, of the correlation between the two projections of the
    held-out pairs.

    Args:
        image: [N, Di] features.
        text: [N, Dt] features, paired by row.
        max_directions: how many pairs of directions count.
        seed: of the choice of held-out pairs.

    Raises:
        ValueError: if there are fewer than 10 pairs.
    """
    image, text = check_pairs(image, text)
    if len(image) < 10:
        raise ValueError(f'`ridge="auto"` needs at least 10 pairs. Received: {len(image)} pairs.')
    order = np.random.default_rng(seed).permutation(len(image))
    held_out, rest = np.split(order, [round(_HELD_OUT_SHARE * len(order))])
    covariances = measure_covariances(*check_pairs(image[rest], text[rest]))
    scores = []
    for ridge in RIDGE_GRID:
        cca = solve_cca(covariances, max_directions=max_directions, ridge=ridge)
        scores.append(
            sum_of_correlations(
                (image[held_out] - cca.image_mean) @ cca.image_directions,
                (text[held_out] - cca.text_mean) @ cca.text_directions,
            )
        )
    return RIDGE_GRID[int(np.argmax(scores))]


def sum_of_correlations(a: np.ndarray, b: np.ndarray) -> float:
    """The sum over columns of the correlation of a [N, K] with b [N, K]; a column that does not vary adds 0."""
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    return float(((a * b).sum(axis=0) / np.where(norms > 0, norms, 1)).sum())
