"""Retrieval ranked by the query's logits against the database's bits, with the measures of `evaluate_retrieval`.

    score(q, i) = sum over bits of logit_q * (2 bit_i - 1)

This is the order that `rerank="asymmetric"` of `cmimh_tf.search` gives its candidates; here the whole database is
ordered by it. The protocol is that of `cmimh_tf.metrics.ranking`: equal scores are ordered by one seeded shuffle of the
database. Items with equal codes have exactly equal scores, as scores are computed once for each distinct code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cmimh_tf.codes import unpack_codes
from cmimh_tf.metrics.checks import check_cutoffs, check_labels
from cmimh_tf.metrics.evaluation import (
    CROSS_MODAL_TASKS,
    DEFAULT_MAP_AT,
    DEFAULT_PRECISION_AT,
    DEFAULT_RECALL_ONE_AT,
    TASKS,
    CodedItems,
)
from cmimh_tf.metrics.ranking import run_in_blocks, tie_order


def evaluate_asymmetric(
    query: CodedItems,
    query_logits: Mapping[str, np.ndarray],
    database: CodedItems,
    *,
    map_at: Sequence[int] = DEFAULT_MAP_AT,
    precision_at: Sequence[int] = DEFAULT_PRECISION_AT,
    recall_one_at: Sequence[int] = DEFAULT_RECALL_ONE_AT,
    seed: int = 0,
) -> dict[str, Any]:
    """Measures retrieval in the four tasks, with the database ranked by the logits of the queries.

    Args:
        query: the queries, disjoint from the database.
        query_logits: float [Q, L] for "image" and "text", the logits of the queries.
        database: the items to search.
        map_at, precision_at, recall_one_at: the cutoffs, as for `evaluate_retrieval`.
        seed: of the shuffle that orders ties.

    Returns:
        `rerank` ("asymmetric"), and `recall_one_at_<k>`, `map`, `map_at_<k>` and `precision_at_k` as
        `evaluate_retrieval` gives them; without labels only `recall_one_at_<k>`.
    """
    map_at, precision_at = check_cutoffs(map_at, "map_at"), check_cutoffs(precision_at, "precision_at")
    recall_one_at = check_cutoffs(recall_one_at, "recall_one_at")
    logits = {side: _check_logits(query_logits[side], query, side) for side in ("image", "text")}
    result: dict[str, Any] = {"rerank": "asymmetric"}
    shares = {}
    for task in CROSS_MODAL_TASKS:
        source, target = task.split("_to_")
        ranks = asymmetric_pair_ranks(logits[source], query.codes(target), seed=seed)
        shares[task] = [float((ranks < k).mean()) for k in recall_one_at]
    for column, k in enumerate(recall_one_at):
        result[f"recall_one_at_{k}"] = {task: share[column] for task, share in shares.items()}
    if query.labels is None or database.labels is None:
        return result
    size = len(database)
    curve_ks = sorted({min(k, size) for k in precision_at})
    cutoffs = sorted({size, *curve_ks, *(min(k, size) for k in map_at)})
    measured = {}
    for task in TASKS:
        source, target = task.split("_to_")
        measured[task] = _measure(logits[source], database.codes(target), query.labels, database.labels, cutoffs, seed)
    column_of = {k: column for column, k in enumerate(cutoffs)}
    result["map"] = {task: float(values[0][:, column_of[size]].mean()) for task, values in measured.items()}
    for k in map_at:
        column = column_of[min(k, size)]
        result[f"map_at_{k}"] = {task: float(values[0][:, column].mean()) for task, values in measured.items()}
    result["precision_at_k"] = {"k": curve_ks} | {
        task: [float((values[1][:, column_of[k]] / k).mean()) for k in curve_ks] for task, values in measured.items()
    }
    return result


def asymmetric_pair_ranks(query_logits: np.ndarray, paired_codes: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """The rank, int64 [N] counted from 0, of each query's own pair among all of `paired_codes`, best score first.

    Args:
        query_logits: float [N, L].
        paired_codes: uint8 [N, L/8]; row i is the pair of row i of `query_logits`.
        seed: of the shuffle that orders ties.
    """
    order = tie_order(len(paired_codes), seed)
    position = np.argsort(order)
    signs, numbers = _distinct_signs(paired_codes)
    ranks = np.empty(len(query_logits), np.int64)

    def rank(rows: slice) -> None:
        scores = (query_logits[rows] @ signs.T)[:, numbers]
        own = scores[np.arange(len(scores)), np.arange(len(ranks))[rows]][:, np.newaxis]
        earlier = position < position[rows, np.newaxis]
        ranks[rows] = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)

    run_in_blocks(rank, len(query_logits))
    return ranks


def _measure(
    logits: np.ndarray,
    codes: np.ndarray,
    query_labels: np.ndarray,
    database_labels: np.ndarray,
    cutoffs: Sequence[int],
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """AP at each cutoff, float64 [Q, K], and the relevant items up to it, int64 [Q, K]."""
    order = tie_order(len(codes), seed)
    signs, numbers = _distinct_signs(codes[order])
    relevance = check_labels(database_labels, len(codes), "database.labels")[order].astype(np.float32).T
    wanted = check_labels(query_labels, len(logits), "query.labels").astype(np.float32)
    average_precision = np.empty((len(logits), len(cutoffs)))
    hits = np.empty((len(logits), len(cutoffs)), np.int64)

    def measure(rows: slice) -> None:
        # Negated before the codes are repeated for their items, so that ascending order is best first.
        scores = -(logits[rows] @ signs.T)
        relevant = wanted[rows] @ relevance > 0
        for query in range(len(scores)):
            ranking = np.argsort(scores[query, numbers], kind="stable")
            ranks = np.flatnonzero(relevant[query, ranking])
            total = np.concatenate([[0], np.cumsum(np.arange(1, len(ranks) + 1) / (ranks + 1))])
            found = np.searchsorted(ranks, cutoffs)
            hits[rows.start + query] = found
            average_precision[rows.start + query] = total[found] / np.maximum(found, 1)

    run_in_blocks(measure, len(logits))
    return average_precision, hits


def _distinct_signs(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bits of the distinct codes as -1 and 1, float32 [U, L], and the number of each code among them, int64 [N]."""
    distinct, numbers = np.unique(codes, axis=0, return_inverse=True)
    return 2 * unpack_codes(distinct).astype(np.float32) - 1, numbers.reshape(-1)


def _check_logits(logits: Any, items: CodedItems, side: str) -> np.ndarray:
    values = np.asarray(logits, np.float32)
    expected = (len(items), 8 * items.image_codes.shape[1])
    if values.shape != expected:
        raise ValueError(f"`query_logits[{side!r}]` must have shape {list(expected)}. Received: {list(values.shape)}.")
    return values
