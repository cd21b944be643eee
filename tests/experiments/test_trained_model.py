"""A CMIMH cell gives the figures of the training command, and its extra measures behave on known cases."""

import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.experiments import step_time
from cmimh_tf.experiments.cell import Cell, SplitSetting
from cmimh_tf.experiments.independence_probe import probe_total_correlation
from cmimh_tf.experiments.methods import measure, split_parts
from cmimh_tf.overrides import override
from cmimh_tf.training.evaluation import evaluate_model
from cmimh_tf.training.trainer import train_model


def test_measures_are_those_of_the_training_command():
    data = make_synthetic(150, seed=0)
    config = override(get_preset("smoke"), {"training.epochs": 2, "seed": 1})
    cell = Cell("CMIMH", 16, 1, SplitSetting(20, 100), config)
    result = measure(cell, data)
    parts = split_parts(cell, data)
    model = train_model(parts.train, config).model
    direct = evaluate_model(model, parts.query, parts.database, seed=1)
    assert {key: result["metrics"][key] for key in direct} == direct
    for modality in ("image", "text"):
        assert np.isfinite(result["metrics"]["probed_total_correlation"][modality])
        assert sum(result["probs_histogram"][modality]) == pytest.approx(1.0)
    assert result["training"]["last_epoch"]["epoch"] == 2


def test_cell_of_cmimh_needs_a_configuration():
    with pytest.raises(ValueError, match=r"`config` must be set in a cell of CMIMH"):
        measure(Cell("CMIMH", 16, 0, SplitSetting(20, 50)), make_synthetic(100, seed=0))


def test_step_time_is_relative_to_probs(monkeypatch):
    # Each step costs what its own configuration says, so that the ratio is known.
    monkeypatch.setattr(step_time, "_make_step", lambda config, train: config.loss)
    monkeypatch.setattr(step_time, "_seconds", lambda loss: 0.2 * loss.critic_samples)
    config = override(get_preset("smoke"), {"loss.critic_inputs": "codes", "loss.critic_samples": 5})
    cell = Cell("CMIMH step time", 16, 0, SplitSetting(20, 80), config)
    metrics = measure(cell, make_synthetic(100, seed=0))["metrics"]
    assert metrics == {"relative_step_time": pytest.approx(5.0), "step_seconds": pytest.approx(1.0)}


def test_the_timed_step_trains():
    config = override(get_preset("smoke"), {"loss.critic_inputs": "codes", "loss.critic_samples": 2})
    step = step_time._make_step(config, make_synthetic(100, seed=0))
    assert step() != step()
    assert step_time._seconds(step) > 0


def test_probe_finds_no_dependence_in_independent_bits_and_much_in_copies():
    random = np.random.default_rng(0)
    independent = random.random((2000, 8))
    copies = np.repeat(random.random((2000, 1)), 8, axis=1)
    assert abs(probe_total_correlation(independent, seed=0, steps=150)) < 0.2
    assert probe_total_correlation(copies, seed=0, steps=150) > 1.0


def test_probe_needs_rows():
    with pytest.raises(ValueError, match=r"`probs` must have at least 4 rows. Received: probs.shape=\(3, 8\)"):
        probe_total_correlation(np.full((3, 8), 0.5), seed=0)
