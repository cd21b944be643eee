"""Quality of codes without labels: mAP in which the nearest pairs by features replace the pairs that share a label.

For each query, the relevant pairs of the database are the 100 nearest ones (at most a tenth of the database) by

    z(cos of the image features) + z(cos of the text features)

with features centred on the database, and z scaling each modality's cosines to unit standard deviation. Neighbour mAP
is the mAP@1000 of the codes' Hamming ranking with this relevance. It tells how well short codes of one modality find
what the features of both modalities together consider similar. It says nothing about the quality of the features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cmimh_tf.metrics.evaluation import CROSS_MODAL_TASKS, CodedItems
from cmimh_tf.metrics.retrieval import mean_average_precision
from cmimh_tf.stored_rows import Rows, take_rows

MAP_AT = 1000
# About as many pairs share a rare label. At most a tenth of the database is used.
NEIGHBOURS = 100
# More are sampled: the similarity matrix has this size at most, however large the data are.
MAX_QUERIES = 1_000
MAX_DATABASE = 10_000

Features = Mapping[str, Rows]


def estimate_quality(
    query: CodedItems, database: CodedItems, query_features: Features, database_features: Features, *, seed: int = 0
) -> dict[str, Any]:
    """Neighbour mAP of codes, with its chance level. Labels are not used.

    Args:
        query: codes of Q pairs.
        database: codes of M pairs, disjoint from the queries.
        query_features: for "image" and "text" [Q, units], what the codes were made of.
        database_features: for "image" and "text" [M, units].
        seed: of the order of ties, and of the sample of 1,000 queries and 10,000 database pairs if there are more.

    Returns:
        JSON-ready:

            neighbour_map         {"image_to_text": mAP, "text_to_image": mAP}
            neighbour_map_chance  the mean of both after the codes were given to other queries at random
            neighbour_map_sample  {"queries", "database", "neighbours"}: how many of each
    """
    generator = np.random.default_rng([seed, 3])
    query_rows, database_rows = (
        _sample(len(query), MAX_QUERIES, generator),
        _sample(len(database), MAX_DATABASE, generator),
    )
    query, database = _take_codes(query, query_rows), _take_codes(database, database_rows)
    image, text = (
        centred_cosines(_read(query_features[name], query_rows), _read(database_features[name], database_rows))
        for name in ("image", "text")
    )
    count = neighbour_count(len(database))
    relevant = nearest(image + text, count)
    stranger = _take_codes(query, generator.permutation(len(query)))
    by_task = {task: neighbour_map(query, database, relevant, task, seed) for task in CROSS_MODAL_TASKS}
    chance = [neighbour_map(stranger, database, relevant, task, seed) for task in CROSS_MODAL_TASKS]
    return {
        "neighbour_map": by_task,
        "neighbour_map_chance": float(np.mean(chance)),
        "neighbour_map_sample": {"queries": len(query), "database": len(database), "neighbours": count},
    }


def neighbour_map(query: CodedItems, database: CodedItems, relevant: np.ndarray, task: str, seed: int = 0) -> float:
    """mAP@1000 of one cross-modal task, with relevance given for each query.

    Args:
        query: codes of Q pairs.
        database: codes of M pairs.
        relevant: bool [Q, M], such as of `nearest`.
        task: "image_to_text" or "text_to_image".
        seed: of the order of ties.
    """
    source, target = task.split("_to_")
    # Each query is a class of its own; a database pair belongs to the classes of the queries that it is near to.
    classes = np.ascontiguousarray(relevant.T, np.uint8)
    return mean_average_precision(
        query.codes(source), database.codes(target), np.eye(len(query), dtype=np.uint8), classes, k=MAP_AT, seed=seed
    )


def neighbour_count(num_database: int) -> int:
    """How many pairs of a database count as neighbours of a query."""
    return max(1, min(NEIGHBOURS, num_database // 10))


def centred_cosines(query: np.ndarray, database: np.ndarray) -> np.ndarray:
    """float32 [Q, M] cosines of rows centred on the database, over their standard deviation."""
    centre = database.mean(axis=0, dtype=np.float64).astype(np.float32)
    cosines = _unit_rows(query - centre) @ _unit_rows(database - centre).T
    return cosines / max(float(cosines.std(dtype=np.float64)), 1e-12)


def nearest(similarity: np.ndarray, count: int) -> np.ndarray:
    """bool [Q, M], the `count` largest of each row of [Q, M]."""
    count = min(count, similarity.shape[1])
    columns = np.argpartition(-similarity, count - 1, axis=1)[:, :count]
    marked = np.zeros(similarity.shape, bool)
    np.put_along_axis(marked, columns, True, axis=1)
    return marked


def _sample(count: int, most: int, generator: np.random.Generator) -> np.ndarray:
    return np.arange(count) if count <= most else np.sort(generator.choice(count, most, replace=False))


def _take_codes(items: CodedItems, rows: np.ndarray) -> CodedItems:
    return CodedItems(items.image_codes[rows], items.text_codes[rows])


def _read(features: Rows, rows: np.ndarray) -> np.ndarray:
    return np.asarray(take_rows(features, rows), np.float32)


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
