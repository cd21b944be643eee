"""mAP of retrieval by real vectors, by the definition that the package uses for codes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

# Of queries, so that the [queries, database] matrices stay small.
_BLOCK_ROWS = 64


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
