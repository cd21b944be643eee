"""Cells and results that need no training."""

import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.experiments.experiment import Cell, SplitSetting
from cmimh_tf.experiments.options import DataFacts, Options
from cmimh_tf.experiments.results import Results
from cmimh_tf.metrics.evaluation import TASKS
from cmimh_tf.overrides import override


@pytest.fixture
def facts():
    return DataFacts("pairs.npz", "0123456789abcdef", 18_020)


@pytest.fixture
def options(facts):
    return Options(facts, get_preset("mscoco"))


@pytest.fixture
def make_cell():
    def make(method="CVH", code_length=16, seed=0, **changes):
        config = None
        if method == "CMIMH":
            config = override(get_preset("smoke"), {**changes, "code_length": code_length, "seed": seed})
        return Cell(method, code_length, seed, SplitSetting(20, 50), config)

    return make


@pytest.fixture
def make_result():
    """A stored result whose every mAP and recall is one number."""

    def make(score, seconds=1.0):
        tasks = dict.fromkeys(TASKS, score)
        curve = {task: [score, score] for task in TASKS}
        radii = {task: {"precision": [score, None], "recall": [0.5, None], "answered": [1, 0]} for task in TASKS}
        metrics = {
            "labels": True,
            "map": tasks,
            "map_at_50": tasks,
            "map_at_1000": tasks,
            **{f"recall_one_at_{k}": tasks for k in (1, 5, 10)},
            "precision_at_k": {"k": [1, 10], **curve},
            "precision_recall": {"radius": [0, 1], **radii},
            "code_statistics": {name: {"correlation_mse": 0.01, "constant_bits": 0} for name in ("image", "text")},
            "probed_total_correlation": {"image": score, "text": score},
            "relative_step_time": 1 + score,
        }
        histogram = {"image": [0.5, 0.0, 0.5], "text": [0.25, 0.5, 0.25]}
        return {"metrics": metrics, "total_seconds": seconds, "threads": 1, "probs_histogram": histogram}

    return make


@pytest.fixture
def fake_results(make_result):
    """Results of an experiment from a function of its points."""

    def make(experiment, score=lambda point: 0.5):
        return Results(experiment, {point.cell: make_result(score(point)) for point in experiment.points})

    return make
