"""One view of the training pairs, centred and brought to a common scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class CentredView:
    """x -> (x - mean) / scale, after which the training rows have a root-mean-square norm of 1.

    Methods whose objective adds up terms of both views would otherwise depend on the units of each.

    Attributes:
        mean: float64 [D].
        scale: root-mean-square distance of the training rows from their mean.
    """

    mean: np.ndarray
    scale: float

    @classmethod
    def fit(cls, features: np.ndarray) -> CentredView:
        """The mean and scale of features [N, D], which must not all be equal."""
        mean = features.mean(axis=0, dtype=np.float64)
        return cls(mean, float(np.sqrt(np.var(features, axis=0, dtype=np.float64).sum())))

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """Centred and scaled features, float64 [N, D]."""
        return (features - self.mean) / self.scale
