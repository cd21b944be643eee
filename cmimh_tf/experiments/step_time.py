"""What a variant's training step costs, as a multiple of the step of its base."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.data.paired import PairedData
from cmimh_tf.experiments.cell import Cell
from cmimh_tf.models.cmimh import CMIMH
from cmimh_tf.overrides import override

_ALTERNATIONS = 7
_STEPS = 5


def measure_step_time(cell: Cell, train: PairedData) -> dict[str, Any]:
    """Times steps of the cell's configuration and of the same with probs as critic inputs, in turn.

    Both run in one process and alternate, so that whatever else the machine does slows both alike.

    Args:
        cell: a cell with a configuration.
        train: where the batch comes from.

    Returns:
        JSON-ready: "metrics" with "relative_step_time", a median of ratios, and "step_seconds".
    """
    if cell.config is None:
        raise ValueError(f"`config` must be set in a cell of CMIMH. Received: config=None in {cell.title}.")
    started = time.monotonic()
    base = override(cell.config, {"loss.critic_inputs": "probs", "loss.critic_samples": 1})
    variant_step, base_step = _make_step(cell.config, train), _make_step(base, train)
    pairs = [(_seconds(variant_step), _seconds(base_step)) for _ in range(_ALTERNATIONS)]
    metrics = {
        "relative_step_time": statistics.median(variant / probs for variant, probs in pairs),
        "step_seconds": statistics.median(variant for variant, _ in pairs),
    }
    return {"metrics": metrics, "seconds": {"fit": 0.0, "measure": time.monotonic() - started}}


def _make_step(config: CMIMHConfig, train: PairedData) -> Callable[[], object]:
    """The compiled step that `fit` runs, on one batch that stays in memory, warmed up."""
    size = min(config.training.batch_size, len(train))
    model = CMIMH(config, train.image.shape[1], train.text.shape[1])
    model.adapt(train.image, train.text)
    model.compile(total_steps=1000)
    batch = {"image": tf.constant(train.image[:size]), "text": tf.constant(train.text[:size])}
    step = tf.function(model.train_step)

    def run() -> object:
        return step(batch)["objective"].numpy()

    run()
    return run


def _seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(_STEPS):
        step()
    return (time.perf_counter() - started) / _STEPS
