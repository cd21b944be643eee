"""Measures of retrieval by Hamming distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.codes import hamming_distance
from cmimh_tf.metrics.checks import check_code_pair, check_cutoff, check_cutoffs
from cmimh_tf.metrics.ranking import WHOLE_DATABASE, Ranking, rank_database, run_in_blocks, tie_order, to_words


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


@dataclass(frozen=True)
class PrecisionRecallCurve:
    """The points of a precision-recall curve, each array of shape [L + 1].

    Attributes:
        radius: int64, 0 to L.
        precision: float64, NaN at a radius within which no query finds anything.
        recall: float64, NaN if no query has a relevant item.
        answered: float64, the share of queries that find anything within the radius.
    """

    radius: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    answered: np.ndarray


def precision_recall_curve(
    query_codes: Any, database_codes: Any, query_labels: Any, database_labels: Any
) -> PrecisionRecallCurve:
    """Precision and recall of retrieving everything within a Hamming radius, as the radius goes from 0 to L.

    The curve of the hash lookup protocol that cross-modal hashing papers plot. For query q and radius r,

        precision(q, r) = (relevant items within r) / (items within r)
        recall(q, r)    = (relevant items within r) / (relevant items in the database)

    Precision is averaged over the queries that find anything within r, relevant or not, and `answered` says
    how many those are. Recall is averaged over the queries that have a relevant item. Nothing is
    interpolated, and no tie has to be broken: a radius takes all items of a distance or none.

    Args:
        query_codes: uint8 [Q, L/8] packed codes.
        database_codes: uint8 [M, L/8] packed codes.
        query_labels: [Q, C] array of 0 and 1.
        database_labels: [M, C] array of 0 and 1.
    """
    ranking = rank_database(query_codes, database_codes, query_labels, database_labels, cutoffs=[1], seed=0)
    return precision_recall_curve_of(ranking)


def precision_recall_curve_of(ranking: Ranking) -> PrecisionRecallCurve:
    """The curve of a ranking."""
    found = np.cumsum(ranking.retrieved, axis=1)
    found_relevant = np.cumsum(ranking.relevant, axis=1)
    all_relevant = found_relevant[:, -1:]
    return PrecisionRecallCurve(
        radius=np.arange(found.shape[1]),
        precision=_mean_of_defined(found_relevant, found),
        recall=_mean_of_defined(found_relevant, np.broadcast_to(all_relevant, found.shape)),
        answered=(found > 0).mean(axis=0),
    )


def _mean_of_defined(numerators: np.ndarray, denominators: np.ndarray) -> np.ndarray:
    """Column means of the quotients whose denominator is not 0; NaN for a column without any."""
    defined = denominators > 0
    totals = np.divide(numerators, denominators, out=np.zeros(defined.shape), where=defined).sum(axis=0)
    counts = defined.sum(axis=0)
    return np.divide(totals, counts, out=np.full(counts.shape, np.nan), where=counts > 0)


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

    from cmimh_tf.metrics.kernels import pair_rank_block

    def rank(rows: slice) -> None:
        pair_rank_block(query_words[rows], words, positions[rows], ranks[rows])

    run_in_blocks(rank, len(query_codes))
    return ranks


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
