"""The upper reference: retrieval by the cosine of canonical variates, without codes."""

import time
from typing import Any

from cmimh_tf.baselines.cca_cosine import CCACosine
from cmimh_tf.baselines.cosine_ranking import cosine_mean_average_precision
from cmimh_tf.data.paired import PairedData
from cmimh_tf.experiments.cell import Cell
from cmimh_tf.metrics.evaluation import DEFAULT_MAP_AT, TASKS


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
            scores = cosine_mean_average_precision(
                vectors[source][0],
                vectors[target][1],
                query.labels,
                database.labels,
                ks=(*DEFAULT_MAP_AT, len(database)),
            )
            for name, score in zip((*(f"map_at_{k}" for k in DEFAULT_MAP_AT), "map"), scores, strict=True):
                metrics.setdefault(name, {})[task] = score
    return {"metrics": metrics, "seconds": {"fit": fitted - started, "measure": time.monotonic() - fitted}}
