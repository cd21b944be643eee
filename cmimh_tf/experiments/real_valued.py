"""The upper reference: retrieval by the cosine of canonical variates, without codes."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from cmimh_tf.baselines.cca_cosine import CCACosine
from cmimh_tf.data.paired import PairedData
from cmimh_tf.experiments.cell import Cell
from cmimh_tf.metrics.evaluation import DEFAULT_MAP_AT, TASKS

_QUERIES_PER_BLOCK = 64


def measure_real_valued_cca(cell: Cell, train: PairedData, query: PairedData, database: PairedData) -> dict[str, Any]:
    """Fits CCA with as many directions as a code has bits, its ridge chosen on training pairs, and measures mAP.

    Args:
        cell: decides directions and seed.
        train: to fit on.
        query: to ask for.
        database: to search.

    Returns:
        JSON-ready: "metrics" with the mAPs of `evaluate_retrieval`, empty of them without labels; "seconds".
    """
    started = time.monotonic()
    cca = CCACosine(cell.code_length, ridge="auto", seed=cell.seed).fit(train.image, train.text)
    fitted = time.monotonic()
    metrics: dict[str, Any] = {
        "num_queries": len(query),
        "num_database": len(database),
        "labels": query.labels is not None,
    }
    if query.labels is not None and database.labels is not None:
        vectors = {
            "image": (cca.project_images(query.image), cca.project_images(database.image)),
            "text": (cca.project_texts(query.text), cca.project_texts(database.text)),
        }
        for task in TASKS:
            source, target = task.split("_to_")
            scores = similarity_map(
                vectors[source][0], vectors[target][1], query.labels, database.labels, (*DEFAULT_MAP_AT, len(database))
            )
            for name, score in zip((*(f"map_at_{k}" for k in DEFAULT_MAP_AT), "map"), scores, strict=True):
                metrics.setdefault(name, {})[task] = score
    return {"metrics": metrics, "seconds": {"fit": fitted - started, "measure": time.monotonic() - fitted}}


def similarity_map(
    query: np.ndarray, database: np.ndarray, query_labels: np.ndarray, database_labels: np.ndarray, ks: Sequence[int]
) -> list[float]:
    """mAP@k of ranking by the largest dot product, with the normaliser of `mean_average_precision`.

    Args:
        query: [Q, D] vectors.
        database: [M, D] vectors.
        query_labels: [Q, C] array of 0 and 1.
        database_labels: [M, C] array of 0 and 1.
        ks: cutoffs; more than M means all.

    Returns:
        One mAP for each k. Equal similarities, which real numbers hardly have, stay in the order of the database.
    """
    sums = np.zeros(len(ks))
    ranks = np.arange(1, len(database) + 1)
    for start in range(0, len(query), _QUERIES_PER_BLOCK):
        rows = slice(start, start + _QUERIES_PER_BLOCK)
        order = np.argsort(-(query[rows] @ database.T), axis=1, kind="stable")
        shared = query_labels[rows].astype(np.float32) @ database_labels.T.astype(np.float32) > 0
        relevant = np.take_along_axis(shared, order, axis=1)
        found = np.cumsum(relevant, axis=1)
        precision_sums = np.cumsum(found / ranks * relevant, axis=1)
        for number, k in enumerate(ks):
            column = min(k, len(database)) - 1
            # A query without a relevant item found scores 0 / 1.
            sums[number] += (precision_sums[:, column] / np.maximum(found[:, column], 1)).sum()
    return [float(total / len(query)) for total in sums]
