"""A hypermodel whose optimum is known, in place of trainings; and records of trials that never were."""

import math

import keras_tuner
import pytest

from cmimh_tf.config import CMIMHConfig, LossConfig
from tuner.oracles import make_oracle
from tuner.results import summarise
from tuner.search_space import make_space
from tuner.trials import TrialRecord
from tuner.weight_tuner import WeightTuner

KEY = "loss.balance_weight"
START = CMIMHConfig(loss=LossConfig(mutual_information_weight=10.0, balance_weight=0.1))
OPTIMUM = {"loss.mutual_information_weight": 25.0, "loss.balance_weight": 0.02}


class PlantedOptimum(keras_tuner.HyperModel):
    """val_map = 1 - the squared distance to `OPTIMUM` in decades; `fail` may raise for some values."""

    def __init__(self, space, fail=None):
        super().__init__()
        self.space = space
        self.fail = fail
        self.tried = []
        self.forgotten = []
        self.optimum = OPTIMUM

    def forget(self, values):
        self.forgotten.append(self.space.overrides(values))

    def fit(self, hp, model=None, *, epochs=None):
        values = self.space.overrides(hp.values)
        self.tried.append(values)
        if self.fail is not None:
            self.fail(values, len(self.tried))
        distance = sum(math.log10(values[key] / OPTIMUM[key]) ** 2 for key in self.space.keys)
        cost = {"seconds": 3.0, "training_seconds": 2.0, "steps": 100.0, "full_steps": 400.0}
        return {"val_map": 1.0 - distance - 0.1 / (epochs or 1), **cost}


@pytest.fixture
def planted(tmp_path):
    """Makes a tuner over the planted optimum in one folder, as often as it is asked for."""

    def make(algorithm="bayesian", trials=20, fail=None, weights=("mutual_information", "balance"), grid_points=None):
        grid_points = grid_points or (3 if algorithm == "grid" else None)
        space = make_space(START, weights=weights, grid_points=grid_points)
        oracle = make_oracle(algorithm, "val_map", space.hyperparameters(), trials=trials, seed=0, max_epochs=9)
        return WeightTuner(oracle, PlantedOptimum(space, fail), tmp_path)

    return make


def make_record(number, score=None, *, epochs=0, reason="", value=0.1, criteria=None):
    """A trial that completed with `score`, failed for `reason`, or is running."""
    cost = {"seconds": 30.0, "training_seconds": 20.0, "steps": 100.0, "full_steps": 400.0}
    metrics = {"val_map": score, **(criteria or {"pair_score": 0.9}), **cost} if score is not None else {}
    status = "completed" if metrics else "failed" if reason else "running"
    return TrialRecord(number, status, {KEY: value}, metrics, epochs, reason)


@pytest.fixture
def record():
    return make_record


@pytest.fixture
def records():
    """The preset, a better trial, a failed one, and one that is running."""
    failed = make_record(2, reason="collapse, of course")
    return [make_record(0, 0.5), make_record(1, 0.7, value=0.3), failed, make_record(3)]


@pytest.fixture
def result_of():
    """The result of a search with these trials."""

    def make(records, asked_trials):
        return summarise(records, "val_map", asked_trials=asked_trials, algorithm="random", folds=1, trial_share=0.3)

    return make
