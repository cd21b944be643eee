"""FSH: codes that reproduce a similarity graph fused from both views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from cmimh_tf.baselines.cca_hashers import random_rotation
from cmimh_tf.baselines.hasher import CentredView, check_pairs
from cmimh_tf.baselines.linear import LinearHash, LinearHasher, to_signs
from cmimh_tf.progress import track

if TYPE_CHECKING:
    from typing_extensions import Self


DEFAULT_ANCHORS = 500
DEFAULT_NEIGHBOURS = 30
DEFAULT_MAP_WEIGHT = 10.0
DEFAULT_RIDGE = 0.1
DEFAULT_ROUNDS = 20


class FSH(LinearHasher):
    """Fusion similarity hashing.

    With S the [N, M] graph of `fusion_similarity`, centred by rows and columns and scaled (`graph_target`), it
    finds codes B [N, L] of the items, codes A [M, L] of the anchors and linear maps W of both views that

        minimise  ||S - B A'||^2 / M + lambda sum over views of (||B - X W||^2 + r ||W||^2)

    over B and A in {-1, 1}, bit by bit without relaxing them, and W in closed form. The code of a new x is the
    sign of x W. Any `code_length` is possible: the ridge r keeps the maps regular, and where there are fewer
    anchors than bits the further bits start from random combinations of the graph's leading directions.

    Reference: Liu, Ji, Wu, Huang and Zhang, "Cross-Modality Binary Code Learning via Fusion Similarity
    Hashing", CVPR 2017.

    Args:
        code_length: number of bits, a positive multiple of 8.
        num_anchors: M; all items, if there are fewer.
        num_neighbours: k of the graph.
        map_weight: lambda.
        ridge: r, relative to the mean variance of a view.
        rounds: maximal number of alternations; it ends when no code changes.
        seed: of the anchors and of the first codes.
    """

    def __init__(
        self,
        code_length: int,
        *,
        num_anchors: int = DEFAULT_ANCHORS,
        num_neighbours: int = DEFAULT_NEIGHBOURS,
        map_weight: float = DEFAULT_MAP_WEIGHT,
        ridge: float = DEFAULT_RIDGE,
        rounds: int = DEFAULT_ROUNDS,
        seed: int = 0,
    ) -> None:
        super().__init__(code_length, seed=seed)
        for name, count in (("num_anchors", num_anchors), ("num_neighbours", num_neighbours), ("rounds", rounds)):
            if count < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={count}.")
        for name, value in (("map_weight", map_weight), ("ridge", ridge)):
            if not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value}.")
        self.num_anchors = num_anchors
        self.num_neighbours = num_neighbours
        self.map_weight = map_weight
        self.ridge = ridge
        self.rounds = rounds

    def fit(self, image: Any, text: Any) -> Self:
        image, text = check_pairs(image, text)
        image_view, text_view = CentredView.fit(image), CentredView.fit(text)
        views = image_view(image), text_view(text)
        anchors = np.random.default_rng(self.seed).permutation(len(image))[: self.num_anchors]
        similarity = fusion_similarity(
            *views, anchors, num_neighbours=min(self.num_neighbours, len(anchors)), image_weight=0.5
        )
        problem = GraphCoding(
            graph_target(similarity, self.code_length), views, map_weight=self.map_weight, ridge=self.ridge
        )
        codes = problem.start(self.code_length, self.seed)
        for _ in track(range(self.rounds), self.rounds, "FSH", "rounds"):
            previous, codes = codes, problem.step(codes)
            if np.array_equal(previous.items, codes.items):
                break
        self._image_hash = LinearHash(image_view.mean, codes.maps[0])
        self._text_hash = LinearHash(text_view.mean, codes.maps[1])
        return self


@dataclass(frozen=True)
class AnchorView:
    """One view's part of the graph, over N items and M anchors, which are items themselves.

    Attributes:
        item_neighbours: [N, M], 1/k at the k anchors nearest to an item, else 0.
        anchor_neighbours: [M, M], the rows of `item_neighbours` that belong to the anchors.
        kernel: [M, M] Gaussian similarity of anchors.
    """

    item_neighbours: np.ndarray
    anchor_neighbours: np.ndarray
    kernel: np.ndarray


def fusion_similarity(
    image: np.ndarray, text: np.ndarray, anchors: np.ndarray, *, num_neighbours: int, image_weight: float
) -> np.ndarray:
    """Similarity of each item with each anchor, combining the neighbourhoods of both views.

    With P the neighbours among the anchors of the items, Q those of the anchors, and K the Gaussian kernel of
    the anchors, in the view of the index,

        S = a P_i K_i Q_t' + (1 - a) P_t K_t Q_i'.

    An entry of the first term is the mean similarity, as images, of the anchors that are near the item as an
    image and the anchors that are near the anchor as a text. It is large only where both views agree.

    Args:
        image: [N, Di] features.
        text: [N, Dt] features, paired by row.
        anchors: [M] row numbers of the items that serve as anchors.
        num_neighbours: k, at most M.
        image_weight: a, in [0, 1].

    Returns:
        S, [N, M], in [0, 1].
    """
    image_view, text_view = (anchor_view(view, anchors, num_neighbours) for view in (image, text))
    by_image = image_view.item_neighbours @ (image_view.kernel @ text_view.anchor_neighbours.T)
    by_text = text_view.item_neighbours @ (text_view.kernel @ image_view.anchor_neighbours.T)
    return image_weight * by_image + (1 - image_weight) * by_text


def anchor_view(features: np.ndarray, anchors: np.ndarray, num_neighbours: int) -> AnchorView:
    """Neighbours and kernel of one view; the kernel is exp(-d^2 / (2 s)), with s the mean d^2 of anchors."""
    distances = _squared_distances(features, features[anchors])
    nearest = np.argpartition(distances, num_neighbours - 1, axis=1)[:, :num_neighbours]
    neighbours = np.zeros_like(distances)
    np.put_along_axis(neighbours, nearest, 1 / num_neighbours, axis=1)
    between = distances[anchors]
    # If all anchors coincide, all distances are 0 and the kernel is 1 everywhere.
    kernel = np.exp(-between / (2 * max(between.mean(), np.finfo(float).tiny)))
    return AnchorView(neighbours, neighbours[anchors], kernel)


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """||a_n - b_m||^2, [N, M]."""
    squares = (a**2).sum(axis=1)[:, np.newaxis] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.maximum(squares, 0)


def graph_target(similarity: np.ndarray, code_length: int) -> np.ndarray:
    """The products of codes that stand for similarities [N, M].

    Row and column means are removed: a constant would be coded by a bit that is the same for all. The rest is
    scaled to a mean square of L, which is that of the products of codes whose L bits are uncorrelated. With a
    smaller target bits would cancel each other, with a larger one they would repeat each other.
    """
    centred = similarity - similarity.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    root_mean_square = np.sqrt((centred**2).mean())
    # A graph without structure is 0 everywhere and cannot be scaled.
    return centred * (np.sqrt(code_length) / root_mean_square) if root_mean_square > 0 else centred


@dataclass(frozen=True)
class GraphCodes:
    """A point of the search: codes of items [N, L] and anchors [M, L] in {-1, 1}, and maps [D, L] of each view."""

    items: np.ndarray
    anchors: np.ndarray
    maps: tuple[np.ndarray, ...]


class GraphCoding:
    """The objective of `FSH` and its alternating minimisation.

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
