"""RecallOne@k: is the item that a query was paired with among the first k?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cmimh_tf.metrics.inputs import check_code_pair, check_cutoffs
from cmimh_tf.metrics.ranking import run_in_blocks, tie_order, to_words


def recall_one_at_k(query_codes: Any, paired_codes: Any, *, ks: Sequence[int], seed: int = 0) -> np.ndarray:
    """The share of queries whose own pair is among the k nearest of all pairs, for each k.

    Row i of `paired_codes`, of the other modality, is the pair of row i of `query_codes`; the other rows are
    what it competes with. Within one modality the measure says nothing, as each item is its own pair. No
    labels are used. Ties in distance are ordered by a seeded shuffle of the rows.

    Args:
        query_codes: uint8 [N, L/8] packed codes.
        paired_codes: uint8 [N, L/8] packed codes.
        ks: positive integers, in any order; N or more gives 1.
        seed: of the shuffle.

    Returns:
        float64 [len(ks)], in the order of `ks`. Chance is k / N.
    """
    ks = check_cutoffs(ks)
    ranks = pair_ranks(query_codes, paired_codes, seed=seed)
    return np.array([(ranks < k).mean() for k in ks])


def pair_ranks(query_codes: Any, paired_codes: Any, *, seed: int = 0) -> np.ndarray:
    """The rank, int64 [N] counted from 0, of each query's own pair among all of `paired_codes`."""
    query_codes, paired_codes = check_code_pair(query_codes, paired_codes, ("query_codes", "paired_codes"))
    if len(query_codes) != len(paired_codes):
        raise ValueError(
            "`query_codes` and `paired_codes` must have the same number of rows. "
            f"Received: query_codes.shape={query_codes.shape}, paired_codes.shape={paired_codes.shape}."
        )
    order = tie_order(len(paired_codes), seed)
    positions = np.argsort(order)  # Of a permutation: its inverse.
    query_words, words = to_words(query_codes), to_words(paired_codes[order]).T.copy()
    ranks = np.empty(len(query_codes), np.int64)

    from cmimh_tf.metrics.ranking_kernel import pair_rank_block

    def rank(rows: slice) -> None:
        pair_rank_block(query_words[rows], words, positions[rows], ranks[rows])

    run_in_blocks(rank, len(query_codes))
    return ranks
