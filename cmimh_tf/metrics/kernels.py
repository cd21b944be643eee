"""The compiled loops of the measures. Imports numba, so it is imported only when a ranking is made.

Ranking M items by a distance that takes only L + 1 values needs no sort. Counting how many items lie at each
distance says at which rank each distance begins; a second walk over the items, in tie order, then hands out
the ranks one by one.

Arrays of words are uint32 [W, M], one row a word of 32 bits, so that the loop over items is a contiguous one.
Everything here runs without the interpreter lock, on one thread, and depends on nothing but its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.extending import intrinsic

# Keys are made for this many items at a time: 8 KB stay in the nearest cache while the words are added up.
_BLOCK = 4096


def compile_loop(function: Callable[..., None]) -> Callable[..., None]:
    """Compiles without the interpreter lock, and keeps the machine code on disk if there is room for it."""
    try:
        return numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # Neither the package's folder nor the user's cache folder can be written.
        return numba.njit(nogil=True)(function)


def _type_count_ones(typing_context: Any, word: Any) -> Any:
    """The number of ones in an unsigned word, by the processor's own (vector) instructions."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return word(word), generate


count_ones: Any = intrinsic(_type_count_ones)


@numba.njit(nogil=True)
def _add_distances(query_word: np.uint32, words: np.ndarray, keys: np.ndarray) -> None:
    for item in range(words.shape[0]):
        keys[item] += np.uint16(count_ones(query_word ^ words[item]) << np.uint32(1))


@numba.njit(nogil=True)
def _mark_relevant(query_word: np.uint32, words: np.ndarray, keys: np.ndarray) -> None:
    for item in range(words.shape[0]):
        keys[item] |= np.uint16((query_word & words[item]) != 0)


@numba.njit(nogil=True)
def _make_keys(
    query_codes: np.ndarray, codes: np.ndarray, query_labels: np.ndarray, labels: np.ndarray, keys: np.ndarray
) -> None:
    """keys[item] = 2 * distance + (1 if relevant else 0)."""
    for start in range(0, keys.shape[0], _BLOCK):
        block = keys[start : start + _BLOCK]
        block[:] = 0
        for word in range(codes.shape[0]):
            _add_distances(query_codes[word], codes[word, start : start + _BLOCK], block)
        for word in range(labels.shape[0]):
            _mark_relevant(query_labels[word], labels[word, start : start + _BLOCK], block)


@numba.njit(nogil=True)
def _count_keys(keys: np.ndarray, counts: np.ndarray) -> None:
    """Fills counts [4, 2L + 2], whose rows add up to the number of items with each key.

    Neighbours often share a key; with four tables an addition need not wait for the one before it.
    """
    counts[:] = 0
    whole = keys.shape[0] // 4 * 4
    for item in range(0, whole, 4):
        counts[0, keys[item]] += 1
        counts[1, keys[item + 1]] += 1
        counts[2, keys[item + 2]] += 1
        counts[3, keys[item + 3]] += 1
    for item in range(whole, keys.shape[0]):
        counts[0, keys[item]] += 1


@numba.njit(nogil=True)
def _hand_out_ranks(keys: np.ndarray, last_key: np.uint64, states: np.ndarray, relevant_ranks: np.ndarray) -> None:
    """Writes the rank of each relevant item whose key is at most `last_key`.

    states[distance] holds, in its low half, the rank of the next item at that distance and, in its high half,
    the slot in `relevant_ranks` of the next relevant one. The rank is stored for every item, and the slot
    moves on only for the relevant: no branch to mispredict. A distance's last store may fall one slot behind
    its run, hence a spare slot after each.
    """
    one, half = np.uint64(1), np.uint64(32)
    for item in range(keys.shape[0]):
        key = np.uint64(keys[item])
        if key <= last_key:
            distance = key >> one
            state = states[distance]
            relevant_ranks[state >> half] = np.uint32(state)
            states[distance] = state + one + ((key & one) << half)


@numba.njit(nogil=True)
def _sum_precisions(
    starts: np.ndarray,
    states: np.ndarray,
    relevant_ranks: np.ndarray,
    cutoffs: np.ndarray,
    average_precision: np.ndarray,
    hits: np.ndarray,
) -> None:
    """Walks the relevant items by rank and closes one cutoff after the other."""
    found, total, column = 0, 0.0, 0
    for distance in range(starts.shape[0]):
        for slot in range(starts[distance], np.int64(states[distance] >> np.uint64(32))):
            rank = relevant_ranks[slot]
            while rank >= cutoffs[column]:
                average_precision[column] = total / max(found, 1)
                hits[column] = found
                column += 1
                if column == cutoffs.shape[0]:
                    return
            found += 1
            total += found / (rank + 1)
    for rest in range(column, cutoffs.shape[0]):
        average_precision[rest] = total / max(found, 1)
        hits[rest] = found


@compile_loop
def rank_block(
    query_codes: np.ndarray,
    codes: np.ndarray,
    query_labels: np.ndarray,
    labels: np.ndarray,
    cutoffs: np.ndarray,
    average_precision: np.ndarray,
    hits: np.ndarray,
    retrieved: np.ndarray,
    relevant: np.ndarray,
) -> None:
    """Ranks the database for each query of a block and fills the four last arguments.

    Args:
        query_codes: uint32 [Q, W] words of the queries' codes.
        codes: uint32 [W, M] words of the database's codes, in tie order.
        query_labels: uint32 [Q, V] words of the queries' labels.
        labels: uint32 [V, M] words of the database's labels, in tie order.
        cutoffs: int64 [K], ascending, each from 1 to M.
        average_precision: float64 [Q, K], out.
        hits: int64 [Q, K], out: relevant items among the first cutoffs[k].
        retrieved: int64 [Q, L + 1], out: items at each distance.
        relevant: int64 [Q, L + 1], out: relevant items at each distance.
    """
    num_items, num_distances = codes.shape[1], retrieved.shape[1]
    keys = np.empty(num_items, np.uint16)
    counts = np.empty((4, 2 * num_distances), np.int64)
    starts = np.empty(num_distances, np.int64)
    states = np.empty(num_distances, np.uint64)
    relevant_ranks = np.empty(num_items + num_distances, np.uint32)
    for query in range(query_codes.shape[0]):
        _make_keys(query_codes[query], codes, query_labels[query], labels, keys)
        _count_keys(keys, counts)
        rank, slot, last_key = 0, 0, 0
        for distance in range(num_distances):
            relevant[query, distance] = counts[:, 2 * distance + 1].sum()
            retrieved[query, distance] = counts[:, 2 * distance].sum() + relevant[query, distance]
            starts[distance] = slot
            states[distance] = (np.uint64(slot) << np.uint64(32)) | np.uint64(rank)
            if rank < cutoffs[-1]:  # Distances that begin behind the last cutoff need no ranks.
                last_key = 2 * distance + 1
            rank += retrieved[query, distance]
            slot += relevant[query, distance] + 1
        _hand_out_ranks(keys, np.uint64(last_key), states, relevant_ranks)
        _sum_precisions(starts, states, relevant_ranks, cutoffs, average_precision[query], hits[query])


@compile_loop
def pair_rank_block(query_codes: np.ndarray, codes: np.ndarray, positions: np.ndarray, ranks: np.ndarray) -> None:
    """Ranks one known item for each query: behind all that is nearer, or as near and earlier in tie order.

    Args:
        query_codes: uint32 [Q, W] words of the queries' codes.
        codes: uint32 [W, M] words of the candidates' codes, in tie order.
        positions: int64 [Q], where in tie order each query's own item is.
        ranks: int64 [Q], out, counted from 0.
    """
    keys = np.empty(codes.shape[1], np.uint16)
    no_labels = np.empty((0, codes.shape[1]), np.uint32)
    for query in range(query_codes.shape[0]):
        _make_keys(query_codes[query], codes, query_codes[query], no_labels, keys)
        own = keys[positions[query]]
        rank = 0
        for item in range(positions[query]):
            rank += keys[item] <= own
        for item in range(positions[query] + 1, keys.shape[0]):
            rank += keys[item] < own
        ranks[query] = rank
