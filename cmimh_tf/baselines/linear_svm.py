"""Linear support vector machines without a bias, many at once on the same features."""

from __future__ import annotations

import numpy as np
import scipy.optimize

# The objective of a machine is at most num_rows * cost, its value at 0; this is relative to that.
_GRADIENT_TOLERANCE = 1e-6


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

    The squared hinge makes it smooth, so that all columns are solved together by one L-BFGS in the primal,
    where each step is two matrix products.

    Args:
        features: [N, D], centred: the machines have no bias.
        signs: [N, L] of -1 and 1.
        cost: of a squared violation of the margin.
        start: [D, L] where to start. The minimum does not depend on it.
        max_iterations: of L-BFGS.

    Returns:
        [D, L] one weight vector a column.
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
