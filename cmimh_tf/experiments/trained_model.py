"""A CMIMH cell: trained, measured as `python -m cmimh_tf.train` does, and looked at more closely."""

import time
from typing import Any

import numpy as np

from cmimh_tf.data.paired import PairedData
from cmimh_tf.experiments.cell import Cell
from cmimh_tf.experiments.independence_probe import probe_total_correlation
from cmimh_tf.models.cmimh import CMIMH, MODALITIES
from cmimh_tf.training.evaluation import evaluate_model
from cmimh_tf.training.trainer import train_model

HISTOGRAM_BINS = 40
_PROBED_ROWS = 10_000


def measure_trained_model(cell: Cell, train: PairedData, query: PairedData, database: PairedData) -> dict[str, Any]:
    """Trains the cell's configuration and measures the model.

    Args:
        cell: a cell with a configuration.
        train: to train on; labels are not looked at.
        query: to ask for.
        database: to search.

    Returns:
        JSON-ready: "metrics" of `evaluate_model` with "probed_total_correlation" added, "seconds", "training" with the
        terms after the last epoch and signs of trouble, "probs_histogram" of the database, shares in equal bins.
    """
    if cell.config is None:
        raise ValueError(f"`config` must be set in a cell of CMIMH. Received: config=None in {cell.title}.")
    started = time.monotonic()
    trained = train_model(train, cell.config)
    fitted = time.monotonic()
    metrics = evaluate_model(trained.model, query, database, seed=cell.seed)
    probs = _database_probs(trained.model, database)
    metrics["probed_total_correlation"] = {
        modality: probe_total_correlation(values, seed=cell.seed) for modality, values in probs.items()
    }
    return {
        "metrics": metrics,
        "seconds": {"fit": fitted - started, "measure": time.monotonic() - fitted},
        "training": {"last_epoch": trained.history[-1] if trained.history else {}, "problems": trained.problems},
        "probs_histogram": {modality: _histogram(values) for modality, values in probs.items()},
    }


def _database_probs(model: CMIMH, database: PairedData) -> dict[str, np.ndarray]:
    """P(h = 1 | x) of the first rows of the database, [rows, code_length] for each modality."""
    batch = {"image": database.image[:_PROBED_ROWS], "text": database.text[:_PROBED_ROWS]}
    outputs = model(batch)
    return {modality: outputs[f"{modality}_probs"].numpy() for modality in MODALITIES}


def _histogram(probs: np.ndarray) -> list[float]:
    counts, _ = np.histogram(probs, bins=HISTOGRAM_BINS, range=(0.0, 1.0))
    shares: list[float] = (counts / counts.sum()).tolist()
    return shares
