"""Codes whose products reproduce a graph, and which linear maps of the features can predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from cmimh_tf.baselines.linear import to_signs
from cmimh_tf.baselines.rotated_variates import random_rotation


def graph_target(similarity: np.ndarray, code_length: int) -> np.ndarray:
    """The products of codes that stand for similarities [N, M].

    Row and column means are removed: a constant would be coded by a bit that is the same for all. What is left
    gets a mean square of L, which is that of the products of codes whose L bits are uncorrelated: a smaller
    target would have bits cancel each other, a larger one would have them repeat each other.
    """
    centred = similarity - similarity.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    root_mean_square = np.sqrt((centred**2).mean())
    # A graph without structure is all 0 here, and has nothing to be scaled.
    return centred * (np.sqrt(code_length) / root_mean_square) if root_mean_square > 0 else centred


@dataclass(frozen=True)
class GraphCodes:
    """A point of the search: codes of items [N, L] and anchors [M, L] in {-1, 1}, and maps [D, L] of each view."""

    items: np.ndarray
    anchors: np.ndarray
    maps: tuple[np.ndarray, ...]


class GraphCoding:
    """The objective of `FSH` and its minimisation by turns.

    Args:
        target: S, [N, M].
        views: [N, D] centred features of each view.
        map_weight: lambda.
        ridge: r, relative to the mean variance of a view.
    """

    def __init__(self, target: np.ndarray, views: tuple[np.ndarray, ...], *, map_weight: float, ridge: float) -> None:
        self.target = target
        self.views = views
        self.map_weight = map_weight
        self.ridges = [ridge * (view**2).sum() / view.shape[1] for view in views]
        self._gram_factors = [
            scipy.linalg.cho_factor(view.T @ view + penalty * np.eye(view.shape[1]))
            for view, penalty in zip(views, self.ridges, strict=True)
        ]

    def start(self, code_length: int, seed: int) -> GraphCodes:
        """Signs of the leading singular vectors of the target, in a random rotation, and the maps that fit them."""
        left, _, right = scipy.linalg.svd(self.target, full_matrices=False)
        count = min(code_length, right.shape[0])
        rotation = random_rotation(count, code_length, seed)
        items, anchors = to_signs(left[:, :count] @ rotation), to_signs(right[:count].T @ rotation)
        return GraphCodes(items, anchors, self._fit_maps(items))

    def step(self, codes: GraphCodes) -> GraphCodes:
        """Each bit of the items, each bit of the anchors, then the maps, at their best given the rest.

        With the other bits fixed, bit l of the items enters the objective only through -2 b' g, with
        g = (S - B A' without bit l) a_l / M + lambda sum of X w_l, so that its best value is sign(g).
        """
        items, anchors = codes.items.copy(), codes.anchors.copy()
        num_anchors = len(anchors)
        predictions = self.map_weight * sum(view @ maps for view, maps in zip(self.views, codes.maps, strict=True))
        for bit in range(items.shape[1]):
            pull = _residual_product(self.target, items, anchors, bit) / num_anchors + predictions[:, bit]
            items[:, bit] = to_signs(pull)
        for bit in range(items.shape[1]):
            anchors[:, bit] = to_signs(_residual_product(self.target.T, anchors, items, bit))
        return GraphCodes(items, anchors, self._fit_maps(items))

    def objective(self, codes: GraphCodes) -> float:
        """The value that `step` lowers."""
        value = ((self.target - codes.items @ codes.anchors.T) ** 2).sum() / len(codes.anchors)
        for view, penalty, maps in zip(self.views, self.ridges, codes.maps, strict=True):
            value += self.map_weight * (((codes.items - view @ maps) ** 2).sum() + penalty * (maps**2).sum())
        return float(value)

    def _fit_maps(self, items: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(
            scipy.linalg.cho_solve(factor, view.T @ items)
            for view, factor in zip(self.views, self._gram_factors, strict=True)
        )


def _residual_product(target: np.ndarray, rows: np.ndarray, columns: np.ndarray, bit: int) -> np.ndarray:
    """(target - rows columns' without `bit`) columns[:, bit], without making the [N, M] residual."""
    overlaps = columns.T @ columns[:, bit]
    overlaps[bit] = 0
    return target @ columns[:, bit] - rows @ overlaps
