"""What it takes to measure a cell: split, fit, hash, measure."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cmimh_tf.baselines.registry import BASELINES, make_baseline
from cmimh_tf.data.paired import PairedData
from cmimh_tf.data.splits import Splits, make_splits, split_data
from cmimh_tf.experiments.cell import Cell
from cmimh_tf.metrics.code_statistics import bit_balance, constant_bits, correlation_mse
from cmimh_tf.metrics.evaluation import CodedItems, evaluate_retrieval

CMIMH_METHOD = "CMIMH"
STEP_TIME_METHOD = "CMIMH step time"
REAL_VALUED_CCA = "CCA, real-valued"


@dataclass(frozen=True)
class Parts:
    """The pairs of a cell.

    Attributes:
        train: to fit on.
        query: to ask for.
        database: to search.
    """

    train: PairedData
    query: PairedData
    database: PairedData


Measure = Callable[[Cell, Parts], dict[str, Any]]


def measure(cell: Cell, data: PairedData) -> dict[str, Any]:
    """Fits the cell's method and measures it.

    Args:
        cell: what to do.
        data: the whole data set.

    Returns:
        "metrics" of `evaluate_retrieval` and more, "seconds" of fitting and measuring, JSON-ready.

    Raises:
        ValueError: if no method has this name.
    """
    measures: dict[str, Measure] = {
        CMIMH_METHOD: _measure_cmimh,
        STEP_TIME_METHOD: _measure_step_time,
        REAL_VALUED_CCA: _measure_real_valued_cca,
        **dict.fromkeys(BASELINES, _measure_baseline),
    }
    if cell.method not in measures:
        raise ValueError(f"`method` must be one of {', '.join(measures)}. Received: method={cell.method!r}.")
    return measures[cell.method](cell, split_parts(cell, data))


def split_parts(cell: Cell, data: PairedData) -> Parts:
    """The parts of `data` by the cell's seed; without validation pairs, those of `python -m cmimh_tf.train`."""
    setting = cell.split
    if setting.num_queries is None:
        splits = split_data(data, cell.seed)
    else:
        splits = make_splits(len(data), cell.seed, num_queries=setting.num_queries)
    database = splits.database[setting.num_validation :]
    if setting.num_queries is None and data.is_train is not None:
        # The head of the database is the official training set.
        database = splits.database[: len(splits.database) - setting.num_validation]
    splits = Splits(train=database[: setting.num_train], database=database, query=splits.query)
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
        for modality in ("image", "text")
    }
    return {"metrics": metrics, "seconds": {"fit": fitted - started, "measure": time.monotonic() - fitted}}


def _measure_cmimh(cell: Cell, parts: Parts) -> dict[str, Any]:
    from cmimh_tf.experiments.trained_model import measure_trained_model

    return measure_trained_model(cell, parts.train, parts.query, parts.database)


def _measure_step_time(cell: Cell, parts: Parts) -> dict[str, Any]:
    from cmimh_tf.experiments.step_time import measure_step_time

    return measure_step_time(cell, parts.train)


def _measure_real_valued_cca(cell: Cell, parts: Parts) -> dict[str, Any]:
    from cmimh_tf.experiments.real_valued import measure_real_valued_cca

    return measure_real_valued_cca(cell, parts.train, parts.query, parts.database)


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None
