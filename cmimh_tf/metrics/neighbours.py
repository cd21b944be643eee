"""The nearest items of each query, to be shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from cmimh_tf.metrics.inputs import check_code_pair, check_cutoff
from cmimh_tf.metrics.ranking import tie_order
from cmimh_tf.ops.hamming import hamming_distance

_QUERIES_PER_BLOCK = 32


def ranked_neighbours(query_codes: Any, database_codes: Any, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The first k items of each query's ranking, in the order that the measures use.

    Args:
        query_codes: uint8 [Q, L/8] packed codes.
        database_codes: uint8 [M, L/8] packed codes.
        k: how many; more than M means all.
        seed: of the shuffle that orders ties.

    Returns:
        int64 [Q, min(k, M)] rows of the database, and their Hamming distances, uint16 of the same shape.
    """
    query_codes, database_codes = check_code_pair(query_codes, database_codes, ("query_codes", "database_codes"))
    k = min(check_cutoff(k), len(database_codes))
    order = tie_order(len(database_codes), seed)
    shuffled = database_codes[order]
    indices = np.empty((len(query_codes), k), np.int64)
    distances = np.empty((len(query_codes), k), np.uint16)
    for start in range(0, len(query_codes), _QUERIES_PER_BLOCK):
        rows = slice(start, start + _QUERIES_PER_BLOCK)
        all_distances = hamming_distance(query_codes[rows], shuffled)
        nearest = np.argsort(all_distances, axis=1, kind="stable")[:, :k]
        indices[rows] = order[nearest]
        distances[rows] = np.take_along_axis(all_distances, nearest, axis=1)
    return indices, distances
