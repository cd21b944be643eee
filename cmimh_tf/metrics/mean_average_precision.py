"""Mean average precision, with the normaliser of the cross-modal hashing literature."""

from __future__ import annotations

from typing import Any

from cmimh_tf.metrics.inputs import check_cutoff
from cmimh_tf.metrics.ranking import WHOLE_DATABASE, Ranking, rank_database


def mean_average_precision(
    query_codes: Any,
    database_codes: Any,
    query_labels: Any,
    database_labels: Any,
    *,
    k: int | None = None,
    seed: int = 0,
) -> float:
    """mAP@k of retrieval by Hamming distance, or mAP over the whole database.

        AP@k = sum over r = 1..k of P(r) * rel(r), divided by N(k)

        rel(r)  1 if the item at rank r shares a label with the query, else 0
        P(r)    the share of relevant items among the first r
        N(k)    the number of relevant items among the first k: those found, not those there are

    A query with N(k) = 0 scores 0 and stays in the mean. Ties in distance are ordered by a seeded shuffle of
    the database.

    Args:
        query_codes: uint8 [Q, L/8] packed codes.
        database_codes: uint8 [M, L/8] packed codes.
        query_labels: [Q, C] array of 0 and 1.
        database_labels: [M, C] array of 0 and 1.
        k: how many of the first items count; None, or more than M, for all.
        seed: of the shuffle.

    Returns:
        The mean of AP@k over the queries, in [0, 1].

    Example:
        If the relevance by rank is 1, 0, 1, 0 then AP@4 = (1/1 + 2/3) / 2 = 0.8333 and AP@2 = (1/1) / 1 = 1.
    """
    k = WHOLE_DATABASE if k is None else check_cutoff(k)
    ranking = rank_database(query_codes, database_codes, query_labels, database_labels, cutoffs=[k], seed=seed)
    return mean_average_precision_of(ranking, k)


def mean_average_precision_of(ranking: Ranking, k: int = WHOLE_DATABASE) -> float:
    """mAP@k of a ranking that was made with `k` among its cutoffs."""
    return float(ranking.average_precision[:, ranking.column(k)].mean())
