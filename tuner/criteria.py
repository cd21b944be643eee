"""By what a trial is judged: mAP with labels, and what can be said without them.

More is better in all of them, and both directions count alike:

    val_map                 mAP@1000 on held-out pairs, by labels; image_to_text and text_to_image
    pair_score              1 - mean rank / worst rank of a held-out item's own pair among the held-out pairs
    pair_recall             RecallOne@10 among the held-out pairs
    neighbour_map           mAP@1000 with the nearest pairs in both feature spaces together in place of labels
    mutual_neighbour_map    the same with those that are near in each of the two spaces
    similarity_correlation  correlation of the codes' similarity across modalities with that of the features
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cmimh_tf.metrics.evaluation import CodedItems
from cmimh_tf.metrics.mean_average_precision import mean_average_precision
from cmimh_tf.metrics.recall_one_at_k import recall_one_at_k
from cmimh_tf.ops.hamming import hamming_distance
from tuner.feature_neighbours import FeatureNeighbours

VAL_MAP = "val_map"
LABEL_FREE_CRITERIA = ("pair_score", "pair_recall", "neighbour_map", "mutual_neighbour_map", "similarity_correlation")
# What `--objective label_free` means.
LABEL_FREE = "neighbour_map"
OBJECTIVES = ("label_free", VAL_MAP, *LABEL_FREE_CRITERIA)
_MAP_AT = 1000
_RECALL_AT = 10


def resolve_objective(name: str | None, has_labels: bool) -> str:
    """The criterion that a search maximises.

    Args:
        name: one of `OBJECTIVES`, or None for val_map where there are labels and the label-free one where not.
        has_labels: whether the data have labels.

    Raises:
        ValueError: for an unknown name, or val_map without labels.
    """
    if name is None:
        return VAL_MAP if has_labels else LABEL_FREE
    if name not in OBJECTIVES:
        raise ValueError(f"`objective` must be one of {', '.join(OBJECTIVES)}. Received: objective={name!r}.")
    if name == VAL_MAP and not has_labels:
        raise ValueError("`objective` must be label_free for data without labels. Received: objective='val_map'.")
    return LABEL_FREE if name == "label_free" else name


def measure_criteria(
    query: CodedItems, database: CodedItems, neighbours: FeatureNeighbours, seed: int
) -> dict[str, float]:
    """All criteria of one fold.

    Args:
        query: the held-out pairs.
        database: what is searched.
        neighbours: of the same queries in the same database.
        seed: of the order of ties.

    Returns:
        Each criterion by name; val_map only with labels.
    """
    # Keras, which those who only need the names can do without.
    from cmimh_tf.training.validation import pair_score

    def pseudo_map(relevant: np.ndarray) -> float:
        # Every query is a class of its own, and a database pair has the classes of the queries that it is near to.
        return _cross_modal_map(query, database, np.eye(len(query), dtype=np.uint8), relevant, seed)

    criteria = {
        "pair_score": pair_score(query.image_codes, query.text_codes),
        "pair_recall": _both_ways(
            lambda source, target: recall_one_at_k(
                query.codes(source), query.codes(target), ks=[_RECALL_AT], seed=seed
            )[0]
        ),
        "neighbour_map": pseudo_map(neighbours.joint),
        "mutual_neighbour_map": pseudo_map(neighbours.mutual),
        "similarity_correlation": _similarity_correlation(query, database, neighbours),
    }
    if query.labels is not None and database.labels is not None:
        criteria = {VAL_MAP: _cross_modal_map(query, database, query.labels, database.labels, seed), **criteria}
    return criteria


def _both_ways(measure: Callable[[str, str], float]) -> float:
    return float((measure("image", "text") + measure("text", "image")) / 2)


def _cross_modal_map(
    query: CodedItems, database: CodedItems, query_labels: np.ndarray, database_labels: np.ndarray, seed: int
) -> float:
    return _both_ways(
        lambda source, target: mean_average_precision(
            query.codes(source), database.codes(target), query_labels, database_labels, k=_MAP_AT, seed=seed
        )
    )


def _similarity_correlation(query: CodedItems, database: CodedItems, neighbours: FeatureNeighbours) -> float:
    """The mean over queries of the correlation of -distance with the features' similarity; 0 for a constant code."""

    def correlation(source: str, target: str) -> float:
        codes = database.codes(target)[neighbours.sampled_rows]
        return _row_correlation(-hamming_distance(query.codes(source), codes).astype(np.float32), neighbours.similarity)

    return _both_ways(correlation)


def _row_correlation(left: np.ndarray, right: np.ndarray) -> float:
    left, right = (values - values.mean(axis=1, keepdims=True) for values in (left, right))
    scale = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = (left * right).sum(axis=1)
    return float(np.mean(np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)))
