"""CMFH: one latent factor matrix for both views, and linear maps into it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from cmimh_tf.baselines.hasher import CentredView, check_pairs
from cmimh_tf.baselines.linear import LinearHash, LinearHasher
from cmimh_tf.progress import track

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_IMAGE_WEIGHT = 0.5
DEFAULT_MAP_WEIGHT = 100.0
DEFAULT_DECAY = 0.01
DEFAULT_ROUNDS = 100


class CMFH(LinearHasher):
    """Collective matrix factorisation hashing.

    With rows as items, the centred views X_i [N, Di] and X_t [N, Dt] share the factors Y [N, L]:

        minimise  a ||X_i - Y U_i||^2 + (1 - a) ||X_t - Y U_t||^2
                  + mu (||Y - X_i W_i||^2 + ||Y - X_t W_t||^2)
                  + gamma (||Y||^2 + ||U_i||^2 + ||U_t||^2 + ||W_i||^2 + ||W_t||^2)

    by alternating between the variables, each in closed form. The code of x is the sign of x W. Any `code_length`
    is possible: gamma keeps every system regular, even if L exceeds the width of a view.

    Reference: Ding, Guo and Zhou, "Collective Matrix Factorization Hashing for Multimodal Data", CVPR 2014.

    Args:
        code_length: number of bits, a positive multiple of 8.
        image_weight: a, in (0, 1).
        map_weight: mu.
        decay: gamma.
        rounds: number of alternations.
        seed: of the first Y, which is standard normal.
    """

    def __init__(
        self,
        code_length: int,
        *,
        image_weight: float = DEFAULT_IMAGE_WEIGHT,
        map_weight: float = DEFAULT_MAP_WEIGHT,
        decay: float = DEFAULT_DECAY,
        rounds: int = DEFAULT_ROUNDS,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        if not 0 < image_weight < 1:
            raise ValueError(f"`image_weight` must be in (0, 1). Received: image_weight={image_weight}.")
        for name, value in (("map_weight", map_weight), ("decay", decay)):
            if not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}.")
        if rounds < 1:
            raise ValueError(f"`rounds` must be at least 1. Received: rounds={rounds}.")
        self.image_weight = image_weight
        self.map_weight = map_weight
        self.decay = decay
        self.rounds = rounds

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        image_view, text_view = CentredView.fit(image), CentredView.fit(text)
        problem = Factorisation(
            views=(image_view(image), text_view(text)),
            view_weights=(self.image_weight, 1 - self.image_weight),
            map_weight=self.map_weight,
            decay=self.decay,
        )
        state = problem.start(self.code_length, self.seed)
        for _ in track(range(self.rounds), self.rounds, "CMFH", "rounds"):
            state = problem.step(state)
        self._image_hash = LinearHash(image_view.mean, state.maps[0])
        self._text_hash = LinearHash(text_view.mean, state.maps[1])
        return self


@dataclass(frozen=True)
class Factors:
    """A point of the search.

    Attributes:
        shared: Y, [N, L].
        loadings: U of each view, [L, D].
        maps: W of each view, [D, L].
    """

    shared: np.ndarray
    loadings: tuple[np.ndarray, ...]
    maps: tuple[np.ndarray, ...]


class Factorisation:
    """The objective of `CMFH` and its alternating minimisation.

    Args:
        views: [N, D] centred features of each view.
        view_weights: weight of each view's reconstruction.
        map_weight: mu.
        decay: gamma.
    """

    def __init__(
        self, views: tuple[np.ndarray, ...], view_weights: tuple[float, ...], *, map_weight: float, decay: float
    ) -> None:
        self.views = views
        self.view_weights = view_weights
        self.map_weight = map_weight
        self.decay = decay
        self._gram_factors = [
            scipy.linalg.cho_factor(view.T @ view + decay / map_weight * np.eye(view.shape[1])) for view in views
        ]

    def start(self, code_length: int, seed: int) -> Factors:
        """Random shared factors, with the loadings and maps that are best for them."""
        shared = np.random.default_rng(seed).standard_normal((len(self.views[0]), code_length))
        return self._fit_views(Factors(shared, (), ()))

    def step(self, factors: Factors) -> Factors:
        """Minimises over Y, then over all U and W; the objective cannot rise. Over M views,

        Y (sum of a_m U_m U_m' + (M mu + gamma) I) = sum of a_m X_m U_m' + mu X_m W_m,
        U_m = (Y'Y + gamma / a_m I)^-1 Y'X_m,    W_m = (X_m'X_m + gamma / mu I)^-1 X_m'Y
        """
        code_length = factors.shared.shape[1]
        system = (len(self.views) * self.map_weight + self.decay) * np.eye(code_length)
        target = np.zeros_like(factors.shared)
        for view, weight, loadings, maps in zip(
            self.views, self.view_weights, factors.loadings, factors.maps, strict=True
        ):
            system += weight * loadings @ loadings.T
            target += view @ (weight * loadings.T + self.map_weight * maps)
        shared = scipy.linalg.solve(system, target.T, assume_a="pos").T
        return self._fit_views(replace(factors, shared=shared))

    def objective(self, factors: Factors) -> float:
        """The value that `step` lowers."""
        value = self.decay * (factors.shared**2).sum()
        for view, weight, loadings, maps in zip(
            self.views, self.view_weights, factors.loadings, factors.maps, strict=True
        ):
            value += weight * ((view - factors.shared @ loadings) ** 2).sum()
            value += self.map_weight * ((factors.shared - view @ maps) ** 2).sum()
            value += self.decay * ((loadings**2).sum() + (maps**2).sum())
        return float(value)

    def _fit_views(self, factors: Factors) -> Factors:
        shared = factors.shared
        gram = shared.T @ shared
        loadings, maps = [], []
        for view, weight, factor in zip(self.views, self.view_weights, self._gram_factors, strict=True):
            products = shared.T @ view
            system = gram + self.decay / weight * np.eye(len(gram))
            loadings.append(scipy.linalg.solve(system, products, assume_a="pos"))
            maps.append(scipy.linalg.cho_solve(factor, products.T))
        return Factors(shared, tuple(loadings), tuple(maps))
