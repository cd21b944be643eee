"""Ranks a database by Hamming distance for each query and collects the counts that the measures need.

The protocol, the same for every measure of this package:

- An item is relevant to a query if they share at least one label.
- Items are ranked by Hamming distance. Equal distances are ordered by one seeded shuffle of the database
  (`tie_order`), never by the order of the database, which may be sorted by class.
- Cutoffs beyond the end of the database mean all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.metrics.checks import check_code_pair, check_cutoffs, check_labels, check_seed

# A cutoff that is beyond the end of every database.
WHOLE_DATABASE = sys.maxsize

_QUERIES_PER_BLOCK = 32


@dataclass(frozen=True)
class Ranking:
    """What is known of Q queries' rankings of M items with codes of L bits.

    Attributes:
        cutoffs: int64 [K], ascending and distinct, at most M.
        average_precision: float64 [Q, K], AP at each cutoff; see `mean_average_precision`.
        hits: int64 [Q, K], relevant items among the first `cutoffs[k]`.
        retrieved: int64 [Q, L + 1], items at each Hamming distance.
        relevant: int64 [Q, L + 1], relevant items at each Hamming distance.
        num_database: M.
    """

    cutoffs: np.ndarray
    average_precision: np.ndarray
    hits: np.ndarray
    retrieved: np.ndarray
    relevant: np.ndarray
    num_database: int

    def column(self, k: int) -> int:
        """The column of cutoff `k`, which must be one of those that were asked for."""
        cutoff = min(k, self.num_database)
        column = int(np.searchsorted(self.cutoffs, cutoff))
        if column == len(self.cutoffs) or self.cutoffs[column] != cutoff:
            raise ValueError(f"`k` must be one of the ranking's cutoffs, {self.cutoffs.tolist()}. Received: k={k}.")
        return column


def tie_order(num_items: int, seed: int) -> np.ndarray:
    """The order, an int64 permutation [num_items], in which items at equal distances are ranked."""
    return np.random.default_rng(check_seed(seed)).permutation(num_items)


def rank_database(
    query_codes: Any,
    database_codes: Any,
    query_labels: Any,
    database_labels: Any,
    *,
    cutoffs: Iterable[int],
    seed: int,
    num_threads: int | None = None,
) -> Ranking:
    """Ranks the database for each query. Memory grows with Q + M, not with their product.

    Args:
        query_codes: uint8 [Q, L/8] packed codes.
        database_codes: uint8 [M, L/8] packed codes.
        query_labels: [Q, C] array of 0 and 1.
        database_labels: [M, C] array of 0 and 1.
        cutoffs: positive ranks to count up to; those beyond M mean M. The smaller the largest, the faster.
        seed: of the tie order.
        num_threads: by default as many as there are processors to run on. The result does not depend on it.
    """
    query_codes, database_codes = check_code_pair(query_codes, database_codes, ("query_codes", "database_codes"))
    query_labels = check_labels(query_labels, len(query_codes), "query_labels")
    database_labels = check_labels(database_labels, len(database_codes), "database_labels")
    if query_labels.shape[1] != database_labels.shape[1]:
        raise ValueError(
            "`query_labels` and `database_labels` must have the same classes. Received: "
            f"query_labels.shape={query_labels.shape}, database_labels.shape={database_labels.shape}."
        )
    num_queries, num_database = len(query_codes), len(database_codes)
    columns = np.unique([min(k, num_database) for k in check_cutoffs(cutoffs, "cutoffs")])
    order = tie_order(num_database, seed)
    words = to_words(database_codes[order]).T.copy()
    label_words = to_words(_pack_labels(database_labels)[order]).T.copy()
    query_words, query_label_words = to_words(query_codes), to_words(_pack_labels(query_labels))

    average_precision = np.empty((num_queries, len(columns)), np.float64)
    hits = np.empty((num_queries, len(columns)), np.int64)
    retrieved = np.empty((num_queries, 8 * query_codes.shape[1] + 1), np.int64)
    relevant = np.empty_like(retrieved)

    from cmimh_tf.metrics.kernels import rank_block

    def rank(rows: slice) -> None:
        outputs = average_precision[rows], hits[rows], retrieved[rows], relevant[rows]
        rank_block(query_words[rows], words, query_label_words[rows], label_words, columns, *outputs)

    run_in_blocks(rank, num_queries, num_threads)
    return Ranking(columns, average_precision, hits, retrieved, relevant, num_database)


def to_words(packed: np.ndarray) -> np.ndarray:
    """Bytes [N, B] as uint32 words [N, ceil(B / 4)], filled up with zeros: they add no distance."""
    num_words = -(-packed.shape[1] // 4)
    padded = np.zeros((len(packed), 4 * num_words), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint32)


def run_in_blocks(work: Callable[[slice], None], num_rows: int, num_threads: int | None = None) -> None:
    """Calls `work` on slices that cover `num_rows`, on several threads; each writes only to its own rows."""
    if num_threads is None:
        num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    blocks = [slice(start, start + _QUERIES_PER_BLOCK) for start in range(0, num_rows, _QUERIES_PER_BLOCK)]
    with ThreadPoolExecutor(num_threads) as executor:
        for _ in executor.map(work, blocks):  # Iterating raises the exceptions of the blocks.
            pass


def _pack_labels(labels: np.ndarray) -> np.ndarray:
    return np.packbits(labels, axis=1, bitorder="little")
