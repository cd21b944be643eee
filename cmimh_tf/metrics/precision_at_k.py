"""Precision among the first k items, the curve over k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cmimh_tf.metrics.inputs import check_cutoffs
from cmimh_tf.metrics.ranking import Ranking, rank_database


def precision_at_k(
    query_codes: Any,
    database_codes: Any,
    query_labels: Any,
    database_labels: Any,
    *,
    ks: Sequence[int],
    seed: int = 0,
) -> np.ndarray:
    """The share of relevant items among the first k, averaged over the queries, for each k.

        precision@k = (number of relevant items at ranks 1..k) / min(k, M)

    Ties in distance are ordered by a seeded shuffle of the database.

    Args:
        query_codes: uint8 [Q, L/8] packed codes.
        database_codes: uint8 [M, L/8] packed codes.
        query_labels: [Q, C] array of 0 and 1.
        database_labels: [M, C] array of 0 and 1.
        ks: positive integers, in any order; more than M means all.
        seed: of the shuffle.

    Returns:
        float64 [len(ks)], in the order of `ks`.
    """
    ks = check_cutoffs(ks)
    ranking = rank_database(query_codes, database_codes, query_labels, database_labels, cutoffs=ks, seed=seed)
    return precision_at_k_of(ranking, ks)


def precision_at_k_of(ranking: Ranking, ks: Sequence[int]) -> np.ndarray:
    """The curve, float64 [len(ks)], of a ranking that was made with all `ks` among its cutoffs."""
    columns = [ranking.column(k) for k in ks]
    return ranking.hits[:, columns].sum(axis=0) / (len(ranking.hits) * ranking.cutoffs[columns])
