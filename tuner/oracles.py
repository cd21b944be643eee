"""The search algorithms: KerasTuner's oracles, which start with the preset and survive failed and interrupted trials.

The changes to KerasTuner:

- The first trial uses the preset's values. Random trials cover the space evenly.
- State and trials are written atomically, and a reloaded search repeats exactly the trials that were running.
  KerasTuner also repeats finished trials, and loses a trial whose file was written but not yet listed in the state.
- Several failed trials in a row stop the search and keep its results. KerasTuner raises an exception while it holds a
  lock, and then the chief never ends.
"""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path
from typing import Any

import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial, TrialStatus
from scipy.stats import qmc

from cmimh_tf.checksums import verify
from cmimh_tf.files import write_json
from tuner.search_space import ALGORITHMS

_NEVER = 10**9
# Variance of the objective's noise, relative to the variance between trials, for the Gaussian process.
_NOISE = 1e-2


class RobustOracle(keras_tuner.Oracle):
    """The part that all algorithms share. It must come first among the base classes."""

    max_failed_in_a_row = 5

    def create_trial(self, tuner_id: str) -> Trial:
        if self.failed_in_a_row() >= self.max_failed_in_a_row and not self._retry_queue:
            self.tuner_ids.discard(tuner_id)
            return Trial(self.get_space(), trial_id="", status=TrialStatus.STOPPED)
        return super().create_trial(tuner_id)

    def failed_in_a_row(self) -> int:
        """The number of failed trials since the last success."""
        ended = (self.trials[trial_id].status for trial_id in reversed(self.end_order))
        return len(list(itertools.takewhile(lambda status: status == TrialStatus.FAILED, ended)))

    def preset_values(self) -> dict[str, Any]:
        """The values of the first trial."""
        return {item.name: item.default for item in self.hyperparameters.space}

    def _random_values(self) -> dict[str, Any]:
        """The preset, then the points of a scrambled Sobol sequence.

        These cover the space more evenly than independent samples, which matters with twenty trials in four dimensions.
        """
        if not self.start_order:
            return self.preset_values()
        space = self.hyperparameters.space
        drawn = self._seed_state - self.seed
        self._seed_state += 1
        sequence = qmc.Sobol(len(space), seed=self.seed)
        if drawn:  # SciPy cannot skip 0 points.
            sequence.fast_forward(drawn)
        return {item.name: item.prob_to_value(prob) for item, prob in zip(space, sequence.random()[0], strict=True)}

    def save(self) -> None:
        write_json(self._get_oracle_fname(), self.get_state(), checksum=True)

    def _save_trial(self, trial: Trial) -> None:
        path = os.path.join(self._get_trial_dir(trial.trial_id), "trial.json")
        write_json(path, trial.get_state(), checksum=True)

    def reload(self) -> None:
        verify(self._get_oracle_fname())
        for path in Path(self._project_dir).glob("trial_*/trial.json"):
            verify(path)
        super().reload()
        interrupted = (TrialStatus.RUNNING, TrialStatus.INVALID)
        # KerasTuner takes trials from the end, so the oldest comes last.
        self._retry_queue = sorted((i for i, trial in self.trials.items() if trial.status in interrupted), reverse=True)


class RandomOracle(RobustOracle, keras_tuner.oracles.RandomSearchOracle):
    """Random search."""


class BayesianOracle(RobustOracle, keras_tuner.oracles.BayesianOptimizationOracle):
    """A Gaussian process over the log weights."""

    def _vectorize_trials(self) -> tuple[np.ndarray, np.ndarray]:
        """Points and scores to minimise, with a score for failed and running trials too.

        KerasTuner ignores failed trials, so it may propose similar values again and again. Here they get the worst
        score of all. Running trials get a pessimistic estimate of a process that was fitted to all other trials;
        KerasTuner uses the process of the last proposal, which at first was fitted to nothing.
        """
        sign = -1.0 if self.objective.direction == "max" else 1.0
        points: list[list[float]] = []
        scores: list[float | None] = []
        for trial in self.trials.values():
            points.append(
                [item.value_to_prob(trial.hyperparameters.values[item.name]) for item in self._nonfixed_space()]
            )
            scores.append(sign * trial.score if trial.status == TrialStatus.COMPLETED else None)
        worst = max(score for score in scores if score is not None)
        failed = [trial.status == TrialStatus.FAILED for trial in self.trials.values()]
        known = [worst if is_failed else score for is_failed, score in zip(failed, scores, strict=True)]
        x = np.array(points)
        is_known = np.array([score is not None for score in known])
        y = np.array([score if score is not None else 0.0 for score in known])
        if not is_known.all():
            self.gpr.fit(x[is_known], y[is_known])
            mean, deviation = self.gpr.predict(x[~is_known], return_std=True)
            y[~is_known] = mean + deviation
        return x, y


class HyperbandOracle(RobustOracle, keras_tuner.oracles.HyperbandOracle):
    """Successive halving: trains many trials for a few epochs, and the best of them for more."""

    def get_best_trials(self, num_trials: int = 1) -> list[Trial]:
        """The best of the trials that were trained longest, since scores after fewer epochs are not comparable."""
        best = super().get_best_trials(len(self.trials))
        best.sort(key=lambda trial: (trial.status != TrialStatus.COMPLETED, -_epochs(trial)))
        return best[:num_trials]


class GridOracle(RobustOracle):
    """Every combination of the dimensions' values: the preset first, then in order.

    KerasTuner's own oracle loses its position when it is reloaded, and runs one trial at a time even with several
    workers.
    """

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        space = self.hyperparameters.space
        preset = tuple(item.default for item in space)
        others = (point for point in itertools.product(*(item.values for item in space)) if point != preset)
        point = next(itertools.islice(itertools.chain([preset], others), len(self.trials), None), None)
        if point is None:
            return {"status": TrialStatus.STOPPED}
        values = {item.name: value for item, value in zip(space, point, strict=True)}
        return {"status": TrialStatus.RUNNING, "values": values}


def make_oracle(
    algorithm: str, objective: str, space: keras_tuner.HyperParameters, *, trials: int, seed: int, max_epochs: int
) -> RobustOracle:
    """Creates the oracle of an algorithm.

    Args:
        algorithm: one of `ALGORITHMS`.
        objective: the criterion to maximise.
        space: with the preset as defaults; a grid needs a space of choices.
        trials: the maximum number of trials; a grid and Hyperband may end earlier.
        seed: of the proposals.
        max_epochs: of the longest trial, for Hyperband.

    Raises:
        ValueError: for an unknown algorithm.
    """
    shared: dict[str, Any] = {
        "objective": keras_tuner.Objective(objective, "max"),
        "hyperparameters": space,
        "allow_new_entries": False,
        "tune_new_entries": False,
        # KerasTuner treats 0 as no seed.
        "seed": seed + 1,
        "max_consecutive_failed_trials": _NEVER,
    }
    oracle: RobustOracle
    if algorithm == "bayesian":
        first = max(3, min(3 * len(space.space), math.ceil(trials / 3)))
        oracle = BayesianOracle(num_initial_points=first, alpha=_NOISE, **shared)
    elif algorithm == "random":
        oracle = RandomOracle(**shared)
    elif algorithm == "hyperband":
        oracle = HyperbandOracle(max_epochs=max_epochs, **shared)
    elif algorithm == "grid":
        oracle = GridOracle(**shared)
    else:
        raise ValueError(f"`algorithm` must be one of {', '.join(ALGORITHMS)}. Received: algorithm={algorithm!r}.")
    oracle.max_trials = trials
    return oracle


def _epochs(trial: Trial) -> int:
    return int(trial.hyperparameters.values.get("tuner/epochs", 0))
