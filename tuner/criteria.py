"""The criteria that a trial is evaluated by: mAP with labels, and five that need no labels.

For all of them, more is better, and each is the mean of image_to_text and text_to_image:

    val_map                 mAP@1000 on held-out pairs, by labels
    pair_score              1 - mean rank / worst rank of a held-out item's own pair among the held-out pairs
    pair_recall             RecallOne@10 among the held-out pairs
    neighbour_map           mAP@1000 in which the nearest pairs, in both feature spaces together, replace the labels
    mutual_neighbour_map    the same with pairs that are near in each of the two spaces
    similarity_correlation  correlation of the similarity of codes across modalities with that of the features
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cmimh_tf.codes import hamming_distance
from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, CodedItems
from cmimh_tf.metrics.neighbour_map import centred_cosines, nearest, neighbour_count, neighbour_map
from cmimh_tf.metrics.retrieval import mean_average_precision, recall_one_at_k

if TYPE_CHECKING:
    from cmimh_tf.data.pairs import PairedData

VAL_MAP = "val_map"
LABEL_FREE_CRITERIA = ("pair_score", "pair_recall", "neighbour_map", "mutual_neighbour_map", "similarity_correlation")
# The criterion that `--objective label_free` stands for.
LABEL_FREE = "neighbour_map"
OBJECTIVES = ("label_free", VAL_MAP, *LABEL_FREE_CRITERIA)
_MAP_AT = 1000
_RECALL_AT = 10
_SAMPLED_DATABASE = 2_000


def resolve_objective(name: str | None, has_labels: bool) -> str:
    """The criterion that a search maximises.

    Args:
        name: one of `OBJECTIVES`; None for val_map if there are labels, and the label-free criterion otherwise.
        has_labels: whether the data have labels.

    Raises:
        ValueError: for an unknown name, or for val_map without labels.
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
    """Measures all criteria on one fold.

    Args:
        query: codes of the held-out pairs.
        database: codes of the pairs to search.
        neighbours: of the same queries in the same database.
        seed: of the order of ties.

    Returns:
        The criteria by name; val_map only with labels.
    """
    # Imports Keras, which takes seconds.
    from cmimh_tf.training.callbacks import pair_score

    def pseudo_map(relevant: np.ndarray) -> float:
        return float(np.mean([neighbour_map(query, database, relevant, task, seed) for task in CROSS_MODAL_TASKS]))

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


@dataclass(frozen=True, eq=False)
class FeatureNeighbours:
    """The nearest of M database pairs to each of Q queries, by features. All trials share them.

    Attributes:
        joint: bool [Q, M], whether the pair is among the query's nearest in both feature spaces together.
        mutual: bool [Q, M], whether the pair is among the query's nearest in each of the two spaces.
        sampled_rows: int64 [S], the database rows whose similarities are kept.
        similarity: float32 [Q, S], the joint similarity to these rows.
    """

    joint: np.ndarray
    mutual: np.ndarray
    sampled_rows: np.ndarray
    similarity: np.ndarray


def feature_neighbours(query: PairedData, database: PairedData) -> FeatureNeighbours:
    """Finds database pairs whose features resemble those of each query, as `cmimh_tf.metrics.neighbour_map` does.

    Args:
        query: Q pairs.
        database: M pairs.
    """
    count = neighbour_count(len(database))
    image = centred_cosines(query.image, database.image)
    text = centred_cosines(query.text, database.text)
    joint = image + text
    sampled = np.arange(0, len(database), max(1, len(database) // _SAMPLED_DATABASE))
    return FeatureNeighbours(
        joint=nearest(joint, count),
        # Twice as many candidates in each space, since most of them are not near in the other space.
        mutual=nearest(image, 2 * count) & nearest(text, 2 * count),
        sampled_rows=sampled,
        similarity=joint[:, sampled].astype(np.float32),
    )
