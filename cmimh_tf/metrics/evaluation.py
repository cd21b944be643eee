"""All retrieval measures of one set of codes, as one JSON-ready dict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.metrics.checks import check_code_pair, check_cutoffs, check_labels, check_seed
from cmimh_tf.metrics.ranking import WHOLE_DATABASE, Ranking, rank_database
from cmimh_tf.metrics.retrieval import (
    mean_average_precision_of,
    precision_at_k_of,
    precision_recall_curve_of,
    recall_one_at_k,
)

TASKS = ("image_to_text", "text_to_image", "image_to_image", "text_to_text")
CROSS_MODAL_TASKS = TASKS[:2]
DEFAULT_MAP_AT = (50, 1000)
DEFAULT_PRECISION_AT = (1, 10, 50, *range(100, 1001, 100))
DEFAULT_RECALL_ONE_AT = (1, 5, 10)


@dataclass(frozen=True)
class CodedItems:
    """Pairs that were hashed.

    Attributes:
        image_codes: uint8 [N, L/8] packed codes.
        text_codes: uint8 [N, L/8] packed codes; row i is the pair of row i of `image_codes`.
        labels: [N, C] array of 0 and 1, or None.
    """

    image_codes: np.ndarray
    text_codes: np.ndarray
    labels: np.ndarray | None = None

    def __post_init__(self) -> None:
        image_codes, text_codes = check_code_pair(self.image_codes, self.text_codes, ("image_codes", "text_codes"))
        if len(image_codes) != len(text_codes):
            raise ValueError(
                "`image_codes` and `text_codes` must have the same number of rows. "
                f"Received: image_codes.shape={image_codes.shape}, text_codes.shape={text_codes.shape}."
            )
        if self.labels is not None:
            check_labels(self.labels, len(image_codes), "labels")

    def __len__(self) -> int:
        return len(self.image_codes)

    def codes(self, modality: str) -> np.ndarray:
        """The codes of "image" or "text"."""
        return {"image": self.image_codes, "text": self.text_codes}[modality]


def evaluate_retrieval(
    query: CodedItems,
    database: CodedItems,
    *,
    map_at: Sequence[int] = DEFAULT_MAP_AT,
    precision_at: Sequence[int] = DEFAULT_PRECISION_AT,
    recall_one_at: Sequence[int] = DEFAULT_RECALL_ONE_AT,
    seed: int = 0,
) -> dict[str, Any]:
    """Measures retrieval in the four tasks, from one ranking each.

    Args:
        query: the queries, disjoint from the database.
        database: the items to search.
        map_at: the k of mAP@k. A k beyond the database means all of it: the figure then equals `map`.
        precision_at: the k of the precision curve. Those beyond the database fall together in its size.
        recall_one_at: the k of RecallOne@k, which is searched among the pairs of `query` itself.
        seed: of the shuffle that orders ties, the same in all tasks.

    Returns:
        With <task> each of "image_to_text", "text_to_image", "image_to_image" and "text_to_text":

            num_queries, num_database, code_length, tie_seed    what was measured
            labels                                              whether there were labels
            recall_one_at_<k>     {<task>: share}, the two cross-modal tasks
            chance                share of relevant (query, database) pairs, about what random codes score
            map, map_at_<k>       {<task>: mAP}
            precision_at_k        {"k": [...], <task>: [precision for each k]}
            precision_recall      {"radius": [...], <task>: {"precision", "recall", "answered": a list each}},
                                  None where a value is undefined

        Without labels all from `chance` on are left out. Each measure is defined in the file of its name.
    """
    _check_comparable(query, database)
    map_at, precision_at = check_cutoffs(map_at, "map_at"), check_cutoffs(precision_at, "precision_at")
    recall_one_at = check_cutoffs(recall_one_at, "recall_one_at")
    result: dict[str, Any] = {
        "num_queries": len(query),
        "num_database": len(database),
        "code_length": 8 * query.image_codes.shape[1],
        "tie_seed": check_seed(seed),
        "labels": query.labels is not None,
    }
    result |= _recall_one(query, recall_one_at, seed)
    if query.labels is not None:
        rankings = {
            task: _rank(task, query, database, (*map_at, *precision_at, WHOLE_DATABASE), seed) for task in TASKS
        }
        result |= _summarise(rankings, map_at, precision_at)
    return result


def _check_comparable(query: CodedItems, database: CodedItems) -> None:
    for name, items in (("query", query), ("database", database)):
        if not isinstance(items, CodedItems):
            raise TypeError(f"`{name}` must be CodedItems. Received: {name} of type {type(items).__name__}.")
    check_code_pair(query.image_codes, database.image_codes, ("query.image_codes", "database.image_codes"))
    if (query.labels is None) != (database.labels is None):
        bare = "query" if query.labels is None else "database"
        raise ValueError(f"`query` and `database` must both have labels, or neither. Received: {bare}.labels=None.")


def _rank(task: str, query: CodedItems, database: CodedItems, cutoffs: Sequence[int], seed: int) -> Ranking:
    source, target = task.split("_to_")
    return rank_database(
        query.codes(source), database.codes(target), query.labels, database.labels, cutoffs=cutoffs, seed=seed
    )


def _recall_one(query: CodedItems, ks: Sequence[int], seed: int) -> dict[str, dict[str, float]]:
    shares = {}
    for task in CROSS_MODAL_TASKS:
        source, target = task.split("_to_")
        shares[task] = recall_one_at_k(query.codes(source), query.codes(target), ks=ks, seed=seed)
    return {
        f"recall_one_at_{k}": {task: float(share[column]) for task, share in shares.items()}
        for column, k in enumerate(ks)
    }


def _summarise(rankings: dict[str, Ranking], map_at: Sequence[int], precision_at: Sequence[int]) -> dict[str, Any]:
    first = next(iter(rankings.values()))
    curve_ks = sorted({min(k, first.num_database) for k in precision_at})
    curves = {task: precision_recall_curve_of(ranking) for task, ranking in rankings.items()}
    result: dict[str, Any] = {"chance": float(first.relevant.sum() / first.retrieved.sum())}
    result["map"] = {task: mean_average_precision_of(ranking) for task, ranking in rankings.items()}
    for k in map_at:
        result[f"map_at_{k}"] = {task: mean_average_precision_of(ranking, k) for task, ranking in rankings.items()}
    result["precision_at_k"] = {"k": curve_ks} | {
        task: precision_at_k_of(ranking, curve_ks).tolist() for task, ranking in rankings.items()
    }
    result["precision_recall"] = {"radius": next(iter(curves.values())).radius.tolist()} | {
        task: {
            "precision": _nan_to_none(curve.precision),
            "recall": _nan_to_none(curve.recall),
            "answered": curve.answered.tolist(),
        }
        for task, curve in curves.items()
    }
    return result


def _nan_to_none(values: np.ndarray) -> list[float | None]:
    """NaN as None, since JSON has no NaN."""
    return [None if np.isnan(value) else float(value) for value in values]
