"""The compiled loop of the exact search. Imports numba, so it is imported with the first search.

A query keeps every code that is nearer than its limit, in the order of the positions. A count per distance gives the
limit: the smallest distance within which there are `top` codes. No heap and no sort are needed, and in most blocks of
codes the smallest distance is already beyond the limit.
"""

from __future__ import annotations

import numba
import numpy as np

from cmimh_tf.metrics.kernels import compile_loop, count_ones

# Codes whose distances are computed together: they stay in the nearest cache while each query of a batch reads them.
_BLOCK = 2048
# Distances whose smallest is compared with the limit, before each of them is.
_GROUP = 64


@numba.njit(nogil=True)
def _fill_distances(query: np.ndarray, codes: np.ndarray, distances: np.ndarray) -> None:
    words = query.shape[0]
    if words == 1:
        # The compiler makes vector instructions of this one.
        word = query[0]
        for item in range(distances.shape[0]):
            distances[item] = np.uint16(count_ones(word ^ codes[item]))
        return
    for item in range(distances.shape[0]):
        ones = np.uint64(0)
        for word_index in range(words):
            ones += np.uint64(count_ones(query[word_index] ^ codes[item * words + word_index]))
        distances[item] = np.uint16(ones)


@numba.njit(nogil=True)
def _smallest(distances: np.ndarray) -> np.uint16:
    smallest = distances[0]
    for item in range(1, distances.shape[0]):
        smallest = min(smallest, distances[item])
    return smallest


@numba.njit(nogil=True)
def _keep_within(kept: np.ndarray, kept_distances: np.ndarray, limit: int) -> int:
    """Moves what is within the limit to the front; returns how many that are."""
    count = 0
    for index in range(kept.shape[0]):
        if kept_distances[index] <= limit:
            kept[count] = kept[index]
            kept_distances[count] = kept_distances[index]
            count += 1
    return count


@compile_loop
def fill_nearest(queries: np.ndarray, codes: np.ndarray, found: np.ndarray, found_distances: np.ndarray) -> None:
    """Fills in the nearest codes of each query, by distance and then by position.

    Args:
        queries: unsigned words [Q, W].
        codes: words [N * W], one code after the other.
        found: int64 [Q, K], with K <= N, to be filled with positions.
        found_distances: int32 [Q, K], to be filled.
    """
    num_queries, words = queries.shape
    top = found.shape[1]
    num_codes = codes.shape[0] // words
    longest = 8 * words * codes.itemsize
    # Fewer than 2 * top codes are within the limit, so that half of this is free again after a clean-up.
    capacity = min(num_codes, 4 * top)
    kept = np.empty((num_queries, capacity), np.uint32)
    kept_distances = np.empty((num_queries, capacity), np.uint16)
    num_kept = np.zeros(num_queries, np.int64)
    # limits: a code must be nearer than this. within: how many codes are at the limit or nearer.
    limits = np.full(num_queries, longest + 1, np.int64)
    within = np.zeros(num_queries, np.int64)
    counts = np.zeros((num_queries, longest + 2), np.int64)
    distances = np.empty(_BLOCK, np.uint16)
    for start in range(0, num_codes, _BLOCK):
        size = min(_BLOCK, num_codes - start)
        for query in range(num_queries):
            _fill_distances(queries[query], codes[start * words :], distances[:size])
            limit, count = limits[query], num_kept[query]
            for group in range(0, size, _GROUP):
                end = min(group + _GROUP, size)
                if _smallest(distances[group:end]) >= limit:
                    continue
                for item in range(group, end):
                    distance = np.int64(distances[item])
                    if distance >= limit:
                        continue
                    if count == capacity:
                        count = _keep_within(kept[query], kept_distances[query], limit)
                    kept[query, count] = start + item
                    kept_distances[query, count] = distance
                    count += 1
                    counts[query, distance] += 1
                    within[query] += 1
                    while within[query] - counts[query, limit] >= top:
                        within[query] -= counts[query, limit]
                        limit -= 1
            limits[query], num_kept[query] = limit, count
    for query in range(num_queries):
        # Where the codes at each distance begin among the results.
        next_place = np.cumsum(counts[query]) - counts[query]
        for index in range(num_kept[query]):
            distance = np.int64(kept_distances[query, index])
            place = next_place[distance]
            if place < top:
                found[query, place] = kept[query, index]
                found_distances[query, place] = distance
                next_place[distance] = place + 1
