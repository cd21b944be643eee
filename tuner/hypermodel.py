"""One trial: a shortened training on each fold, and all criteria of what came out."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any, TextIO

import keras
import keras_tuner
import numpy as np

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.data.paired import PairedData
from cmimh_tf.models.cmimh import CMIMH
from cmimh_tf.training.batches import steps_per_epoch
from cmimh_tf.training.evaluation import hash_pairs
from cmimh_tf.training.run_folder import RunFolder
from cmimh_tf.training.trainer import train_model
from tuner.criteria import measure_criteria
from tuner.feature_neighbours import FeatureNeighbours, feature_neighbours
from tuner.folds import Fold, make_folds
from tuner.search_space import SearchSpace

DEFAULT_TRIAL_SHARE = 0.3
# Healthy trainings may look collapsed at first: shorter ones are left to their score.
_EPOCHS_OF_GRACE = 10


class WeightHyperModel(keras_tuner.HyperModel):
    """Trains and judges CMIMH models with the weights of a trial.

    All trials share one seed: they differ in their weights only, and are compared on the same pairs.

    Args:
        space: what is searched.
        pool: the database, its first `num_train` pairs being the training set.
        num_train: size of the training set.
        folds: of the training set; 1 holds out a fifth once.
        trial_share: share of the configured epochs that a trial is trained for, in (0, 1].
        training_root: folder for the checkpoints of running trials, so that one that was killed goes on; None for none.
        keep_checkpoints: leaves them there, for Hyperband, which goes on from them.
        progress: where the trainings tell how they go.
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
        """A compiled model with the trial's weights. `fit` does not need it: each fold has a model of its own."""
        config, fit_rows = self.trial_config(hp.values), self.folds[0].fit
        model = CMIMH(config, self.pool.image.shape[1], self.pool.text.shape[1])
        model.adapt(self.pool.image[fit_rows], self.pool.text[fit_rows])
        model.compile(total_steps=config.training.epochs * steps_per_epoch(len(fit_rows), config.training.batch_size))
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
        """Trains and judges each fold.

        Args:
            hp: with the trial's values.
            model: of `build`; not used.
            callbacks: for each training.
            epochs: to stop after, for Hyperband; None for all of the trial's.

        Returns:
            The mean of each criterion over the folds, and what they cost together: "seconds", "training_seconds",
            "steps", and for comparison "full_steps", those of one full training.

        Raises:
            TrainingDiverged: if a term is no longer a number.
            FailedTrialError: if the codes have collapsed.
        """
        started = time.monotonic()
        # The last trial's models and graphs would stay in memory.
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
            "full_steps": float(full.epochs * steps_per_epoch(self.num_train, full.batch_size)),
        }

    def trial_config(self, values: dict[str, Any]) -> CMIMHConfig:
        """The shortened configuration of a trial: the cosine schedule and the warm-up shrink with the epochs."""
        config = self.space.trial_config(values)
        epochs = max(1, round(self.trial_share * config.training.epochs))
        batch_size = config.training.batch_size
        steps = epochs * steps_per_epoch(len(self.folds[0].fit), batch_size)
        full_steps = config.training.epochs * steps_per_epoch(self.num_train, batch_size)
        warmup = round(config.loss.modality_gap_warmup_steps * steps / full_steps)
        return dataclasses.replace(
            config,
            training=dataclasses.replace(config.training, epochs=epochs),
            loss=dataclasses.replace(config.loss, modality_gap_warmup_steps=warmup),
        )

    def training_folder(self, config: CMIMHConfig) -> Path | None:
        """One for each configuration: Hyperband's longer trial of the same weights finds what the shorter one left."""
        if self.training_root is None:
            return None
        key = hashlib.sha256(json.dumps(config.to_dict(), sort_keys=True).encode()).hexdigest()
        return self.training_root / key[:16]

    def forget(self, values: dict[str, Any]) -> None:
        """Deletes the checkpoints of a trial whose result is known, unless they are to be kept."""
        folder = self.training_folder(self.trial_config(values))
        if folder and not self.keep_checkpoints:
            shutil.rmtree(folder, ignore_errors=True)

    def _fit_fold(
        self,
        config: CMIMHConfig,
        position: int,
        fold: Fold,
        callbacks: list[keras.callbacks.Callback] | None,
        epochs: int | None,
    ) -> tuple[dict[str, float], float, int]:
        """Criteria, and the seconds and steps of training in this process."""
        folder = self.training_folder(config)
        fold_folder = folder / f"fold_{position + 1}" if folder else None
        epochs_before = len(RunFolder(fold_folder).read_history(config.training.epochs)) if fold_folder else 0
        stopping = [] if epochs is None or epochs >= config.training.epochs else [_StopAfter(epochs)]
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
        return criteria, trained.seconds, new_epochs * steps_per_epoch(len(fold.fit), config.training.batch_size)


class _StopAfter(keras.callbacks.Callback):
    """Ends a training early, with its schedule as planned for all of it."""

    def __init__(self, epochs: int):
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if epoch + 1 >= self.epochs:
            self.model.stop_training = True
