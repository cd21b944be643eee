"""The KerasTuner tuner of a search: runs trials alone or as a worker, or serves them to workers as the chief."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import grpc
import keras_tuner
import tensorflow as tf
from keras_tuner.engine.trial import Trial, TrialStatus

# KerasTuner's public modules do not include the chief's server.
from keras_tuner.src import protos
from keras_tuner.src.distribute import oracle_chief

from cmimh_tf.checksums import DamagedFile
from cmimh_tf.command_line import UserError, user_message
from cmimh_tf.files import write_json
from tuner.hypermodel import WeightHyperModel
from tuner.oracles import RobustOracle, make_oracle
from tuner.trials import FAILURE_FILE
from tuner.workers import PARENT_VARIABLE

if TYPE_CHECKING:
    from tuner.search import WeightSearch

SILENCE_VARIABLE = "CMIMH_TF_CHIEF_SILENCE"
_DEFAULT_SILENCE_SECONDS = 3600.0
_CHIEF_POLL_SECONDS = 0.2
# Between two requests of an idle worker. KerasTuner would repeat them without a pause.
_WORKER_PAUSE_SECONDS = 0.02


class SearchStopped(keras_tuner.errors.FatalError, UserError):
    """A trial could not be run for a reason that has nothing to do with its weights, such as a full disk."""


class NoTrialSucceeded(RuntimeError):
    """All trials failed, so there is no best one."""


def make_tuner(
    search: WeightSearch,
    progress: TextIO,
    on_trial: Callable[[], None] | None = None,
    on_end: Callable[[], Any] | None = None,
) -> WeightTuner:
    """Creates the tuner of a search. Trials that are already in its folder are not run again.

    Args:
        search: the search.
        progress: where to print the progress of the trainings.
        on_trial: called after each trial.
        on_end: called after the last trial.
    """
    config = search.space.config
    hypermodel = WeightHyperModel(
        search.space,
        search.pool,
        search.num_train,
        folds=search.folds,
        trial_share=search.trial_share,
        training_root=search.folder.training,
        keep_checkpoints=search.algorithm == "hyperband",
        progress=progress,
    )
    oracle = make_oracle(
        search.algorithm,
        search.objective,
        search.space.hyperparameters(),
        trials=search.trials,
        seed=config.seed,
        max_epochs=max(1, round(search.trial_share * config.training.num_epochs(hypermodel.num_train))),
    )
    return WeightTuner(oracle, hypermodel, search.folder.path, on_trial, on_end)


class WeightTuner(keras_tuner.Tuner):
    """Runs the trials of a `WeightHyperModel`.

    Args:
        oracle: proposes the trials.
        hypermodel: trains and evaluates them.
        directory: of the search. Trials are kept in its folder `trials` and reloaded from there.
        on_trial: called after each trial that this process has run.
        on_end: called after the last trial.
    """

    def __init__(
        self,
        oracle: RobustOracle,
        hypermodel: WeightHyperModel,
        directory: str | Path,
        on_trial: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ):
        super().__init__(oracle, hypermodel, directory=str(directory), project_name="trials")
        self.on_trial = on_trial
        self.on_end = on_end

    def search(self, *fit_args: Any, **fit_kwargs: Any) -> None:
        """Runs all missing trials. As the chief, serves them to workers instead."""
        if self._is_worker():
            super().search(*fit_args, **fit_kwargs)
            return
        self.oracle.verbose = 0
        # So that there is a state to reload, even if the first trial is interrupted.
        self.save()
        if os.environ.get("KERASTUNER_ORACLE_IP"):
            serve_oracle(self.oracle)
        else:
            super().search(*fit_args, **fit_kwargs)

    def pre_create_trial(self) -> None:
        time.sleep(_WORKER_PAUSE_SECONDS)

    def run_trial(self, trial: Trial, *fit_args: Any, **fit_kwargs: Any) -> dict[str, float]:
        """Returns the criteria and the cost of one trial. The reason of a failure is written to the trial's folder.

        Raises:
            SearchStopped: without space, memory, a package or an intact checkpoint.
        """
        values = trial.hyperparameters.values
        try:
            return self.hypermodel.fit(trial.hyperparameters, epochs=values.get("tuner/epochs"), **fit_kwargs)
        except (OSError, MemoryError, ImportError, DamagedFile, tf.errors.ResourceExhaustedError) as error:
            # The trial is run again when the command is given again.
            raise SearchStopped(user_message(error)) from error
        except Exception as error:
            # KerasTuner keeps a traceback, but does not send it from a worker to the chief.
            write_json(Path(self.get_trial_dir(trial.trial_id)) / FAILURE_FILE, {"reason": _reason(error)})
            raise

    def on_trial_end(self, trial: Trial) -> None:
        super().on_trial_end(trial)
        # Only after the oracle has saved the result: if the process were killed in between, all folds would be trained
        # again.
        self.hypermodel.forget(trial.hyperparameters.values)
        if self.on_trial is not None:
            self.on_trial()

    def on_search_end(self) -> None:
        if self.on_end is not None:
            self.on_end()

    def get_best_hyperparameters(self, num_trials: int = 1) -> list[keras_tuner.HyperParameters]:
        """The configuration keys and values of the best trials that succeeded.

        Raises:
            NoTrialSucceeded: if all trials failed.
        """
        best = [t for t in self.oracle.get_best_trials(num_trials) if t.status == TrialStatus.COMPLETED]
        if not best:
            raise NoTrialSucceeded("No trial succeeded, so there are no best weights.")
        found = []
        for trial in best:
            hyperparameters = self.hypermodel.space.hyperparameters()
            hyperparameters.values = self.hypermodel.space.overrides(trial.hyperparameters.values)
            found.append(hyperparameters)
        return found

    def save(self) -> None:
        """Saves the oracle, which holds all state."""
        if not self._is_worker():
            self.oracle.save()

    def reload(self) -> None:
        if not self._is_worker():
            self.oracle.reload()

    def _populate_initial_space(self) -> None:
        """The space is given, so no model needs to be built to find it."""

    def _get_tuner_fname(self) -> str:
        """The file whose existence makes KerasTuner reload a search. A worker must not reload anything."""
        name = f"no_state_of_{self.tuner_id}" if self._is_worker() else "oracle.json"
        return os.path.join(self.project_dir, name)


def serve_oracle(oracle: Any) -> None:
    """Serves trials to workers until all have ended, or until no worker has sent a request for a long time.

    KerasTuner's own server waits for every worker that it has ever heard of, in steps of 20 seconds, and forever if one
    of them has died.

    The address is in KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT. CMIMH_TF_CHIEF_SILENCE is the time without
    requests in seconds, 3600 by default; it must be longer than a trial. If one command started the chief and its
    workers, there is no limit: that command notices when a worker dies.

    Raises:
        OSError: if the address is in use.
    """
    address = f"{os.environ['KERASTUNER_ORACLE_IP']}:{os.environ['KERASTUNER_ORACLE_PORT']}"
    default_silence = math.inf if PARENT_VARIABLE in os.environ else _DEFAULT_SILENCE_SECONDS
    max_silence = float(os.environ.get(SILENCE_VARIABLE, default_silence))
    # One thread, so that requests change the oracle one after the other.
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), options=[("grpc.so_reuseport", 0)])
    servicer = _Servicer(oracle)
    protos.get_service_grpc().add_OracleServicer_to_server(servicer, server)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"The chief cannot listen at {address}: {error}") from error
    if not bound:
        raise OSError(f"The chief cannot listen at {address}.")
    server.start()
    try:
        while not (servicer.stop_triggered and not oracle.ongoing_trials and not oracle.tuner_ids):
            if time.monotonic() - servicer.last_request > max_silence:
                break
            time.sleep(_CHIEF_POLL_SECONDS)
    finally:
        oracle.save()
        server.stop(grace=1.0).wait()


class _Servicer(oracle_chief.OracleServicer):
    """KerasTuner's servicer, which also records the time of the last request."""

    def __init__(self, oracle: Any):
        super().__init__(oracle)
        self.last_request = time.monotonic()

    def CreateTrial(self, request: Any, context: Any) -> Any:
        self.last_request = time.monotonic()
        return super().CreateTrial(request, context)

    def EndTrial(self, request: Any, context: Any) -> Any:
        self.last_request = time.monotonic()
        return super().EndTrial(request, context)


def _reason(error: Exception) -> str:
    """The message of an error, with its type unless that only says that a trial failed."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return text if kind in ("FailedTrialError", "TrainingDiverged") and text else f"{kind}: {text}"[:500]
