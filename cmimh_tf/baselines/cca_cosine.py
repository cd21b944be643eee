"""The cosine of canonical variates: how well CCA retrieves before anything is made binary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cmimh_tf.baselines.cca import DEFAULT_RIDGE, Ridge, fit_cca_with
from cmimh_tf.baselines.hasher import check_width
from cmimh_tf.baselines.linear import LinearHash

if TYPE_CHECKING:
    from typing_extensions import Self
# Queries are ranked in blocks, so that the [queries, database] matrices stay small.
_BLOCK_ROWS = 64


class CCACosine:
    """Real-valued CCA, an upper reference for the hashers that binarise its variates. It is not a `Hasher`.

    An item is its canonical variates, each weighted by its correlation, at unit length; two items are as
    similar as the dot product of these vectors, the cosine. In float32 it needs 32 times the memory of codes
    of as many bits.

    Reference: Gong, Ke, Isard and Lazebnik, "A Multi-View Embedding Space for Modeling Internet Images, Tags,
    and Their Semantics", IJCV 2014.

    Args:
        num_directions: the most canonical directions to use; there are at most as many as the narrower view
            is wide.
        ridge: regularisation of CCA, relative to the mean variance of a view, or "auto": see `choose_ridge`.
        seed: of the pairs held out for "auto".
    """

    _image_map: LinearHash | None = None
    _text_map: LinearHash | None = None

    def __init__(self, num_directions: int, *, ridge: Ridge = DEFAULT_RIDGE, seed: int = 0) -> None:
        if num_directions < 1:
            raise ValueError(f"`num_directions` must be positive. Received: num_directions={num_directions}.")
        self.num_directions = num_directions
        self.ridge = ridge
        self.seed = seed

    def fit(self, image: Any, text: Any) -> Self:
        """Learns from N pairs: image features [N, Di] and text features [N, Dt]. Returns itself."""
        cca = fit_cca_with(self.ridge, image, text, max_directions=self.num_directions, seed=self.seed)
        self._image_map = LinearHash(cca.image_mean, cca.image_directions * cca.correlations)
        self._text_map = LinearHash(cca.text_mean, cca.text_directions * cca.correlations)
        return self

    def project_images(self, image: Any) -> np.ndarray:
        """Unit vectors, float64 [N, K], of image features [N, Di]."""
        return _unit_vectors(self._image_map, image, "image")

    def project_texts(self, text: Any) -> np.ndarray:
        """Unit vectors, float64 [N, K], of text features [N, Dt]."""
        return _unit_vectors(self._text_map, text, "text")


def _unit_vectors(linear_map: LinearHash | None, features: Any, name: str) -> np.ndarray:
    if linear_map is None:
        raise RuntimeError("`fit` must be called before items can be projected.")
    variates = linear_map.project(check_width(features, len(linear_map.offset), name))
    # An item exactly at the mean has no direction: it stays 0, equally far from all others.
    norms = np.linalg.norm(variates, axis=1, keepdims=True)
    return variates / np.where(norms > 0, norms, 1)


def cosine_mean_average_precision(
    query: np.ndarray,
    database: np.ndarray,
    query_labels: np.ndarray,
    database_labels: np.ndarray,
    *,
    ks: Sequence[int],
) -> list[float]:
    """mAP@k of retrieval by the dot product of unit vectors, otherwise as `mean_average_precision`.

    AP@k is the sum of the precisions at the ranks of the relevant items among the first k, divided by their
    number, or 0 where there are none. Equal dot products keep the order of the database: with real vectors
    they are the exception.

    Args:
        query: [Q, K] unit vectors.
        database: [M, K] unit vectors.
        query_labels: [Q, C] array of 0 and 1.
        database_labels: [M, C] array of 0 and 1.
        ks: how many of the first items count; more than M means all.

    Returns:
        The mAP for each k.
    """
    columns = [min(k, len(database)) - 1 for k in ks]
    ranks = np.arange(1, max(columns) + 2)
    # In integers of 8 bits the number of shared labels could overflow to 0.
    query_labels, database_labels = query_labels.astype(np.float32), database_labels.astype(np.float32)
    totals = np.zeros(len(columns))
    for start in range(0, len(query), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        order = np.argsort(-(query[block] @ database.T), axis=1, kind="stable")[:, : len(ranks)]
        relevant = np.take_along_axis(query_labels[block] @ database_labels.T > 0, order, axis=1)
        found = relevant.cumsum(axis=1)
        precisions = (found / ranks * relevant).cumsum(axis=1)
        totals += (precisions[:, columns] / np.maximum(found[:, columns], 1)).sum(axis=0)
    return (totals / len(query)).tolist()
