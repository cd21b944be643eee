"""The ridge of CCA, given or chosen by the correlation of pairs that were held out. No label is looked at."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmimh_tf.baselines.cca import CanonicalCorrelation, fit_cca, measure_covariances, solve_cca
from cmimh_tf.baselines.hasher import check_pairs

# A positive number, relative to the mean variance of a view, or "auto".
Ridge = float | str
# Half decades: 0.001, 0.00316, ... 31.6, 100.
RIDGE_GRID = tuple(float(ridge) for ridge in np.logspace(-3, 2, 11))
_HELD_OUT_SHARE = 0.2


def fit_cca_with(ridge: Ridge, image: Any, text: Any, *, max_directions: int, seed: int) -> CanonicalCorrelation:
    """`fit_cca` with a given ridge, or with the one of `choose_ridge` if it is "auto"."""
    if isinstance(ridge, str):
        if ridge != "auto":
            raise ValueError(f'`ridge` must be a positive number or "auto". Received: ridge={ridge!r}.')
        ridge = choose_ridge(image, text, max_directions=max_directions, seed=seed)
    return fit_cca(image, text, max_directions=max_directions, ridge=ridge)


def choose_ridge(image: Any, text: Any, *, max_directions: int, seed: int) -> float:
    """The ridge of `RIDGE_GRID` whose canonical variates agree best on pairs that CCA has not seen.

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
