"""The precision-recall curve of hash lookup: one point for each Hamming radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.metrics.ranking import Ranking, rank_database


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
