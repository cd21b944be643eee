"""Which database pairs resemble a held-out pair, as far as the features can say without labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cmimh_tf.data.paired import PairedData

# About as many as share a rare label; at most a tenth of the database.
_NEIGHBOURS = 100
_SAMPLED_DATABASE = 2_000


@dataclass(frozen=True, eq=False)
class FeatureNeighbours:
    """What codes of Q queries and M database pairs are compared with. It depends on no weight.

    Attributes:
        joint: uint8 [M, Q], 1 where the pair is among the query's nearest in both feature spaces together.
        mutual: uint8 [M, Q], 1 where it is among the nearest in each of the two.
        sampled_rows: int64 [S], database rows for which all similarities are kept.
        similarity: float32 [Q, S], the joint similarity to those.
    """

    joint: np.ndarray
    mutual: np.ndarray
    sampled_rows: np.ndarray
    similarity: np.ndarray


def feature_neighbours(query: PairedData, database: PairedData) -> FeatureNeighbours:
    """Compares every query with every database pair.

    The joint similarity is z(cos of images) + z(cos of texts), the cosines of features centred on the database, z
    bringing each modality's cosines to unit deviation.

    Args:
        query: Q pairs.
        database: M pairs.
    """
    count = max(1, min(_NEIGHBOURS, len(database) // 10))
    image = _cosines(query.image, database.image)
    text = _cosines(query.text, database.text)
    joint = image + text
    sampled = np.arange(0, len(database), max(1, len(database) // _SAMPLED_DATABASE))
    # Twice as many candidates in each space, since most of them are nobody's neighbour in the other.
    mutual = _nearest(image, 2 * count) & _nearest(text, 2 * count)
    return FeatureNeighbours(
        joint=np.ascontiguousarray(_nearest(joint, count).T, np.uint8),
        mutual=np.ascontiguousarray(mutual.T, np.uint8),
        sampled_rows=sampled,
        similarity=joint[:, sampled].astype(np.float32),
    )


def _cosines(query: np.ndarray, database: np.ndarray) -> np.ndarray:
    """float32 [Q, M] cosines of centred rows, over their standard deviation."""
    centre = database.mean(axis=0, dtype=np.float64).astype(np.float32)
    cosines = _unit_rows(query - centre) @ _unit_rows(database - centre).T
    return cosines / max(float(cosines.std(dtype=np.float64)), 1e-12)


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _nearest(similarity: np.ndarray, count: int) -> np.ndarray:
    """bool [Q, M], the `count` largest of each row."""
    count = min(count, similarity.shape[1])
    columns = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
    marked = np.zeros(similarity.shape, bool)
    np.put_along_axis(marked, columns, True, axis=1)
    return marked
