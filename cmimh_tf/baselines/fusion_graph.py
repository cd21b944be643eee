"""The graph of FSH: similarities of items and anchors that both views have a say in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
    """Similarity of each item with each anchor, where each view looks through the neighbourhoods of the other.

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
    # Where all anchors fall together there is no distance to speak of, and the kernel is 1 throughout.
    kernel = np.exp(-between / (2 * max(between.mean(), np.finfo(float).tiny)))
    return AnchorView(neighbours, neighbours[anchors], kernel)


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """||a_n - b_m||^2, [N, M]."""
    squares = (a**2).sum(axis=1)[:, np.newaxis] + (b**2).sum(axis=1) - 2 * a @ b.T
    return np.maximum(squares, 0)
