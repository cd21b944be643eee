"""The KerasTuner tuner that runs trials, alone, as a worker, or as the chief that hands them out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial, TrialStatus

from cmimh_tf.atomic import write_json
from tuner.hypermodel import WeightHyperModel
from tuner.oracles import _RobustOracle
from tuner.serve_oracle import serve_oracle

FAILURE_FILE = "failure.json"
# Between two requests of a worker that was told to wait; KerasTuner would ask without a pause.
_PAUSE_SECONDS = 0.02


class NoTrialSucceeded(RuntimeError):
    """There is no best trial, since all have failed."""


class WeightTuner(keras_tuner.Tuner):
    """Runs the trials of a `WeightHyperModel`.

    Args:
        oracle: which proposes them.
        hypermodel: which trains and judges them.
        directory: of the search; trials are kept in its folder `trials`, and what is there is taken up again.
        on_trial: called after each trial that this process has run.
        on_end: called after the last.
    """

    def __init__(
        self,
        oracle: _RobustOracle,
        hypermodel: WeightHyperModel,
        directory: str | Path,
        on_trial: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ):
        super().__init__(oracle, hypermodel, directory=str(directory), project_name="trials")
        self.on_trial = on_trial
        self.on_end = on_end

    def search(self, *fit_args: Any, **fit_kwargs: Any) -> None:
        """Runs trials until there are enough. A chief hands them out instead."""
        if self._is_worker():
            super().search(*fit_args, **fit_kwargs)
            return
        self.oracle.verbose = 0
        # From now on there is something to reload, whatever happens to the first trial.
        self.save()
        if os.environ.get("KERASTUNER_ORACLE_IP"):
            serve_oracle(self.oracle)
        else:
            super().search(*fit_args, **fit_kwargs)

    def pre_create_trial(self) -> None:
        time.sleep(_PAUSE_SECONDS)

    def run_trial(self, trial: Trial, *fit_args: Any, **fit_kwargs: Any) -> dict[str, float]:
        """Criteria and cost of one trial; the reason of a failure is left in its folder."""
        values = trial.hyperparameters.values
        try:
            return self.hypermodel.fit(trial.hyperparameters, epochs=values.get("tuner/epochs"), **fit_kwargs)
        except Exception as error:
            # KerasTuner keeps a traceback, and not even that between processes.
            write_json(Path(self.get_trial_dir(trial.trial_id)) / FAILURE_FILE, {"reason": _reason(error)})
            raise

    def on_trial_end(self, trial: Trial) -> None:
        super().on_trial_end(trial)
        # Not before the oracle has the result: a kill in between would train all folds again.
        self.hypermodel.forget(trial.hyperparameters.values)
        if self.on_trial is not None:
            self.on_trial()

    def on_search_end(self) -> None:
        if self.on_end is not None:
            self.on_end()

    def get_best_hyperparameters(self, num_trials: int = 1) -> list[keras_tuner.HyperParameters]:
        """The configuration keys and values of the best trials that succeeded.

        Raises:
            NoTrialSucceeded: if there is none.
        """
        best = [t for t in self.oracle.get_best_trials(num_trials) if t.status == TrialStatus.COMPLETED]
        if not best:
            raise NoTrialSucceeded("No trial succeeded, so that there are no best weights.")
        found = []
        for trial in best:
            hyperparameters = self.hypermodel.space.hyperparameters()
            hyperparameters.values = self.hypermodel.space.overrides(trial.hyperparameters.values)
            found.append(hyperparameters)
        return found

    def save(self) -> None:
        """All state is the oracle's."""
        if not self._is_worker():
            self.oracle.save()

    def reload(self) -> None:
        if not self._is_worker():
            self.oracle.reload()

    def _populate_initial_space(self) -> None:
        """The space was given: no model needs to be built to find it."""

    def _get_tuner_fname(self) -> str:
        """What KerasTuner looks for to know whether there is something to reload; a worker has nothing."""
        name = f"no_state_of_{self.tuner_id}" if self._is_worker() else "oracle.json"
        return os.path.join(self.project_dir, name)


def _reason(error: Exception) -> str:
    """The message, with the type where it says more than that a trial failed."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return text if kind in ("FailedTrialError", "TrainingDiverged") and text else f"{kind}: {text}"[:500]
