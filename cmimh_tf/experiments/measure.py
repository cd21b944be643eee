"""Measures one cell: split the data, fit the method, hash, and evaluate the codes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.baselines.registry import BASELINES, make_baseline
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.data.splits import Splits, make_splits, split_data
from cmimh_tf.experiments.experiment import Cell
from cmimh_tf.experiments.options import CMIMH_METHOD, REAL_VALUED_CCA, STEP_TIME_METHOD
from cmimh_tf.metrics.code_statistics import bit_balance, constant_bits, correlation_mse
from cmimh_tf.metrics.evaluation import DEFAULT_MAP_AT, TASKS, CodedItems, evaluate_retrieval

HISTOGRAM_BINS = 40
_PROBED_ROWS = 10_000
_MODALITIES = ("image", "text")


@dataclass(frozen=True)
class Parts:
    """The pairs of a cell.

    Attributes:
        train: the pairs to fit on. Their labels are not used.
        query: the queries.
        database: the pairs to search.
    """

    train: PairedData
    query: PairedData
    database: PairedData


def measure(cell: Cell, data: PairedData) -> dict[str, Any]:
    """Fits the cell's method and measures it.

    Args:
        cell: the cell.
        data: the whole data set.

    Returns:
        JSON-ready: "metrics" of `evaluate_retrieval` and more, and "seconds" of fitting and measuring.

    Raises:
        ValueError: if there is no method of this name.
    """
    measures: dict[str, Callable[[Cell, Parts], dict[str, Any]]] = {
        CMIMH_METHOD: _measure_cmimh,
        STEP_TIME_METHOD: _measure_step_time,
        REAL_VALUED_CCA: _measure_real_valued_cca,
        **dict.fromkeys(BASELINES, _measure_baseline),
    }
    if cell.method not in measures:
        raise ValueError(f"`method` must be one of {', '.join(measures)}. Received: method={cell.method!r}.")
    if cell.method in (CMIMH_METHOD, STEP_TIME_METHOD) and cell.config is None:
        raise ValueError(f"`config` must be set in a cell of CMIMH. Received: config=None in {cell.title}.")
    return measures[cell.method](cell, split_parts(cell, data))


def split_parts(cell: Cell, data: PairedData) -> Parts:
    """The parts of `data` by the cell's seed; without validation pairs, those of `python -m cmimh_tf.train`."""
    setting = cell.split
    if setting.num_queries is None:
        splits = split_data(data, cell.seed)
    else:
        splits = make_splits(len(data), cell.seed, num_queries=setting.num_queries)
    validation, database = np.split(splits.database, [setting.num_validation])
    if setting.num_queries is None and data.is_train is not None:
        # The database starts with the official training set.
        database, validation = np.split(splits.database, [len(splits.database) - setting.num_validation])
    query = validation if setting.search_for == "validation" else splits.query
    splits = Splits(train=database[: setting.num_train], database=database, query=query)
    return Parts(data.take(splits.train), data.take(splits.query), data.take(splits.database))


def _measure_baseline(cell: Cell, parts: Parts) -> dict[str, Any]:
    started = time.monotonic()
    hasher = make_baseline(cell.method, cell.code_length, cell.seed).fit(parts.train.image, parts.train.text)
    fitted = time.monotonic()
    query, database = (
        CodedItems(hasher.hash_images(part.image), hasher.hash_texts(part.text), part.labels)
        for part in (parts.query, parts.database)
    )
    metrics = evaluate_retrieval(query, database, seed=cell.seed)
    metrics["code_statistics"] = {
        modality: {
            "correlation_mse": _finite_or_none(correlation_mse(database.codes(modality))),
            "bit_balance": bit_balance(database.codes(modality)),
            "constant_bits": constant_bits(database.codes(modality)),
        }
        for modality in _MODALITIES
    }
    return {"metrics": metrics, "seconds": _seconds(started, fitted)}


def _measure_cmimh(cell: Cell, parts: Parts) -> dict[str, Any]:
    """Trains and evaluates as `python -m cmimh_tf.train` does, and examines the probabilities of the bits.

    Adds to the metrics "probed_total_correlation"; to the result "training", with the terms after the last epoch and
    signs of trouble, and "probs_histogram" of database items, as shares in equal bins.
    """
    from cmimh_tf.experiments.probes import probe_total_correlation
    from cmimh_tf.training.evaluation import evaluate_model
    from cmimh_tf.training.trainer import train_model

    assert cell.config is not None  # `measure` checks it.
    started = time.monotonic()
    trained = train_model(parts.train, cell.config)
    fitted = time.monotonic()
    metrics = evaluate_model(trained.model, parts.query, parts.database, seed=cell.seed, rerank=cell.rerank)
    outputs = trained.model({name: getattr(parts.database, name)[:_PROBED_ROWS] for name in _MODALITIES})
    probs = {modality: outputs[f"{modality}_probs"].numpy() for modality in _MODALITIES}
    metrics["probed_total_correlation"] = {
        modality: probe_total_correlation(values, seed=cell.seed) for modality, values in probs.items()
    }
    return {
        "metrics": metrics,
        "seconds": _seconds(started, fitted),
        "training": {"last_epoch": trained.history[-1] if trained.history else {}, "problems": trained.problems},
        "probs_histogram": {modality: _histogram(values) for modality, values in probs.items()},
    }


def _measure_step_time(cell: Cell, parts: Parts) -> dict[str, Any]:
    from cmimh_tf.experiments.probes import time_steps

    assert cell.config is not None  # `measure` checks it.
    started = time.monotonic()
    metrics = time_steps(cell.config, parts.train)
    return {"metrics": metrics, "seconds": _seconds(started, started)}


def _measure_real_valued_cca(cell: Cell, parts: Parts) -> dict[str, Any]:
    """The upper reference: retrieval by the cosine of canonical variates, as many as a code has bits, without codes."""
    from cmimh_tf.baselines.cca_cosine import CCACosine, cosine_mean_average_precision

    train, query, database = parts.train, parts.query, parts.database
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
        names = [*(f"map_at_{k}" for k in DEFAULT_MAP_AT), "map"]
        cutoffs = (*DEFAULT_MAP_AT, len(database))
        for task in TASKS:
            source, target = task.split("_to_")
            scores = cosine_mean_average_precision(
                vectors[source][0], vectors[target][1], query.labels, database.labels, ks=cutoffs
            )
            for name, score in zip(names, scores, strict=True):
                metrics.setdefault(name, {})[task] = score
    return {"metrics": metrics, "seconds": _seconds(started, fitted)}


def _seconds(started: float, fitted: float) -> dict[str, float]:
    return {"fit": fitted - started, "measure": time.monotonic() - fitted}


def _histogram(probs: np.ndarray) -> list[float]:
    counts, _ = np.histogram(probs, bins=HISTOGRAM_BINS, range=(0.0, 1.0))
    shares: list[float] = (counts / counts.sum()).tolist()
    return shares


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
