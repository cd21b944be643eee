"""Closer looks at CMIMH: the cost of a step, and the dependence of bits in known cases."""

import numpy as np
import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.experiments import probes
from cmimh_tf.experiments.experiment import Cell, SplitSetting
from cmimh_tf.experiments.measure import measure
from cmimh_tf.experiments.probes import probe_total_correlation
from cmimh_tf.overrides import override


def test_step_time_is_relative_to_probs(monkeypatch):
    # Each step costs what its own configuration says, so that the ratio is known.
    monkeypatch.setattr(probes, "_make_step", lambda config, train: config.loss)
    monkeypatch.setattr(probes, "_seconds_per_step", lambda loss: 0.2 * loss.critic_samples)
    config = override(get_preset("smoke"), {"loss.critic_inputs": "codes", "loss.critic_samples": 5})
    cell = Cell("CMIMH step time", 16, 0, SplitSetting(20, 80), config)
    metrics = measure(cell, make_synthetic(100, seed=0))["metrics"]
    assert metrics == {"relative_step_time": pytest.approx(5.0), "step_seconds": pytest.approx(1.0)}


def test_the_timed_step_trains():
    config = override(get_preset("smoke"), {"loss.critic_inputs": "codes", "loss.critic_samples": 2})
    step = probes._make_step(config, make_synthetic(100, seed=0))
    assert step() != step()
    assert probes._seconds_per_step(step) > 0


def test_probe_finds_no_dependence_in_independent_bits_and_much_in_copies():
    random = np.random.default_rng(0)
    independent = random.random((2000, 8))
    copies = np.repeat(random.random((2000, 1)), 8, axis=1)
    assert abs(probe_total_correlation(independent, seed=0, steps=150)) < 0.2
    assert probe_total_correlation(copies, seed=0, steps=150) > 1.0


def test_probe_needs_rows():
    with pytest.raises(ValueError, match=r"`probs` must have at least 4 rows. Received: probs.shape=\(3, 8\)"):
        probe_total_correlation(np.full((3, 8), 0.5), seed=0)
