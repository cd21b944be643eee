"""One trial: a shortened training on each fold of the training set, and the criteria of the trained model.

Queries of the evaluation protocol are not used. Fold f of k splits the pairs like this:

    fit       training pairs outside fold f
    query     training pairs inside fold f
    database  the whole database without fold f
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import keras
import keras_tuner
import numpy as np

from cmimh_tf.config import CMIMHConfig, batches_per_epoch
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.files import remove_folder
from cmimh_tf.model import CMIMH
from cmimh_tf.training.evaluation import hash_pairs
from cmimh_tf.training.run_folder import RunFolder
from cmimh_tf.training.trainer import train_model
from tuner.criteria import FeatureNeighbours, feature_neighbours, measure_criteria
from tuner.search_space import SearchSpace

DEFAULT_TRIAL_SHARE = 0.3
# In the first epochs, a healthy training may look collapsed. Shorter trainings only get a score.
_EPOCHS_OF_GRACE = 10
# The fraction of the training set that is held out if there is only one fold.
HOLDOUT_SHARE = 0.2
_MAX_QUERIES = 2_000
_MAX_DATABASE = 20_000
_MIN_PAIRS = 10


@dataclass(frozen=True, eq=False)
class Fold:
    """Rows of the database, int64, in ascending order.

    Attributes:
        fit: the rows to train on.
        query: the held-out rows, disjoint from `fit` and `database`.
        database: the rows to search, including `fit`.
    """

    fit: np.ndarray
    query: np.ndarray
    database: np.ndarray


def make_folds(num_database: int, num_train: int, *, folds: int, seed: int) -> list[Fold]:
    """Splits the training set, which is the first `num_train` rows of the database.

    Args:
        num_database: rows of the database.
        num_train: rows of the training set.
        folds: k; 1 holds out a fifth once.
        seed: of the permutation.

    Returns:
        `folds` folds. If there are more than 2,000 queries or 20,000 database rows, a random sample of that size is
        used.

    Raises:
        ValueError: if there are too few training pairs for that many folds.
    """
    check_folds(folds, num_train)
    generator = np.random.default_rng([seed, 3])
    order = generator.permutation(num_train)
    parts = [order[: round(HOLDOUT_SHARE * num_train)]] if folds == 1 else np.array_split(order, folds)
    return [_fold(rows, num_database, num_train, generator) for rows in parts]


def check_folds(folds: int, num_train: int) -> None:
    """Raises a ValueError if there are too few training pairs for so many folds."""
    if folds < 1 or num_train < max(_MIN_PAIRS, 2 * folds):
        raise ValueError(
            f"`folds` must be at least 1, with at least {_MIN_PAIRS} training pairs and two per fold. "
            f"Received: folds={folds}, {num_train} training pairs."
        )


def _fold(held_out: np.ndarray, num_database: int, num_train: int, generator: np.random.Generator) -> Fold:
    fit = np.setdiff1d(np.arange(num_train), held_out)
    database = np.setdiff1d(np.arange(num_database), held_out)
    if len(database) > _MAX_DATABASE:
        database = np.sort(generator.choice(database, _MAX_DATABASE, replace=False))
    return Fold(fit, np.sort(held_out[:_MAX_QUERIES]), database)


class WeightHyperModel(keras_tuner.HyperModel):
    """Trains and evaluates CMIMH models with the weights of a trial.

    All trials share one seed: they differ only in their weights and are compared on the same pairs.

    Args:
        space: the search space.
        pool: the database; its first `num_train` pairs are the training set.
        num_train: size of the training set.
        folds: of the training set; 1 holds out a fifth once.
        trial_share: length of a trial as a fraction of the configured epochs, in (0, 1].
        training_root: folder for checkpoints, so that an interrupted trial can resume; None for none.
        keep_checkpoints: keeps the checkpoints of finished trials. Hyperband resumes from them.
        progress: where to print the progress of the trainings.
    """

    def __init__(
        self,
        space: SearchSpace,
        pool: PairedData,
        num_train: int,
        *,
        folds: int = 1,
        trial_share: float = DEFAULT_TRIAL_SHARE,
        training_root: Path | None = None,
        keep_checkpoints: bool = False,
        progress: TextIO | None = None,
    ):
        super().__init__(name="cmimh_weights", tunable=True)
        if not 0 < trial_share <= 1:
            raise ValueError(f"`trial_share` must be in (0, 1]. Received: trial_share={trial_share}.")
        self.space = space
        self.pool = pool
        self.num_train = num_train
        self.folds = make_folds(len(pool), num_train, folds=folds, seed=space.config.seed)
        self.trial_share = trial_share
        self.training_root = training_root
        self.keep_checkpoints = keep_checkpoints
        self.progress = progress
        self._neighbours: dict[int, FeatureNeighbours] = {}

    def build(self, hp: keras_tuner.HyperParameters) -> CMIMH:
        """A compiled model with the trial's weights. `fit` does not use it, since each fold has its own model."""
        config, fit_rows = self.trial_config(hp.values), self.folds[0].fit
        model = CMIMH(config=config)
        model.adapt(self.pool.image[fit_rows], self.pool.text[fit_rows])
        model.compile()
        return model

    def fit(
        self,
        hp: keras_tuner.HyperParameters,
        model: CMIMH | None = None,
        *,
        callbacks: list[keras.callbacks.Callback] | None = None,
        epochs: int | None = None,
        **_: Any,
    ) -> dict[str, float]:
        """Trains and evaluates each fold.

        Args:
            hp: holds the trial's values.
            model: of `build`; not used.
            callbacks: for each training.
            epochs: number of epochs to stop after, for Hyperband; None for the whole trial.

        Returns:
            The mean of each criterion over the folds, and their total cost: "seconds", "training_seconds", "steps",
            and for comparison "full_steps", the steps of one full training.

        Raises:
            TrainingDiverged: if a term is not finite.
            FailedTrialError: if the codes have collapsed.
        """
        started = time.monotonic()
        # Otherwise the models and graphs of the last trial stay in memory.
        keras.backend.clear_session()
        gc.collect()
        config = self.trial_config(hp.values)
        measured: list[dict[str, float]] = []
        cost = {"training_seconds": 0.0, "steps": 0.0}
        for position, fold in enumerate(self.folds):
            criteria, seconds, steps = self._fit_fold(config, position, fold, callbacks, epochs)
            measured.append(criteria)
            cost["training_seconds"] += seconds
            cost["steps"] += steps
        full = self.space.trial_config(hp.values).training
        means = {name: float(np.mean([criteria[name] for criteria in measured])) for name in measured[0]}
        return {
            **means,
            "seconds": time.monotonic() - started,
            **cost,
            "full_steps": float(full.num_epochs(self.num_train) * batches_per_epoch(self.num_train, full.batch_size)),
        }

    def trial_config(self, values: dict[str, Any]) -> CMIMHConfig:
        """The shortened configuration of a trial: the schedule and the warm-up shrink with the epochs."""
        config = self.space.trial_config(values)
        full_epochs = config.training.num_epochs(self.num_train)
        epochs = max(1, round(self.trial_share * full_epochs))
        batch_size = config.training.batch_size
        steps = epochs * batches_per_epoch(len(self.folds[0].fit), batch_size)
        full_steps = full_epochs * batches_per_epoch(self.num_train, batch_size)
        warmup = round(config.loss.modality_gap_warmup_steps * steps / full_steps)
        return dataclasses.replace(
            config,
            training=dataclasses.replace(config.training, epochs=epochs),
            loss=dataclasses.replace(config.loss, modality_gap_warmup_steps=warmup),
        )

    def training_folder(self, config: CMIMHConfig) -> Path | None:
        """A folder per configuration, so that a longer Hyperband trial finds the checkpoint of the shorter one."""
        if self.training_root is None:
            return None
        key = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()
        return self.training_root / key[:16]

    def forget(self, values: dict[str, Any]) -> None:
        """Deletes the checkpoints of a finished trial, unless `keep_checkpoints` is set."""
        folder = self.training_folder(self.trial_config(values))
        if folder and not self.keep_checkpoints:
            remove_folder(folder)

    def _fit_fold(
        self,
        config: CMIMHConfig,
        position: int,
        fold: Fold,
        callbacks: list[keras.callbacks.Callback] | None,
        epochs: int | None,
    ) -> tuple[dict[str, float], float, int]:
        """Returns the criteria, and the seconds and steps of training in this process."""
        folder = self.training_folder(config)
        fold_folder = folder / f"fold_{position + 1}" if folder else None
        epochs_before = len(RunFolder(fold_folder).read_history()) if fold_folder else 0
        all_epochs = config.training.num_epochs(len(fold.fit))
        stopping = [] if epochs is None or epochs >= all_epochs else [_StopAfter(epochs)]
        trained = train_model(
            self.pool.take(fold.fit), config, fold_folder, progress=self.progress,
            callbacks=[*(callbacks or ()), *stopping],
        )  # fmt: skip
        collapses = [problem for problem in trained.problems if problem.startswith("collapse")]
        if collapses and len(trained.history) >= _EPOCHS_OF_GRACE:
            raise keras_tuner.errors.FailedTrialError(collapses[0])
        query, database = self.pool.take(fold.query), self.pool.take(fold.database)
        if position not in self._neighbours:
            self._neighbours[position] = feature_neighbours(query, database)
        criteria = measure_criteria(
            hash_pairs(trained.model, query),
            hash_pairs(trained.model, database),
            self._neighbours[position],
            config.seed,
        )
        new_epochs = max(0, len(trained.history) - epochs_before)
        return criteria, trained.seconds, new_epochs * batches_per_epoch(len(fold.fit), config.training.batch_size)


class _StopAfter(keras.callbacks.Callback):
    """Ends a training early, without changing its learning rate schedule."""

    def __init__(self, epochs: int):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if epoch + 1 >= self.epochs:
            self.model.stop_training = True
