"""Keras callbacks of a training run: divergence, history, early stopping, progress and checkpoints."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import TextIO

import keras
import numpy as np
import tensorflow as tf

from cmimh_tf.checksums import DamagedFile, verify
from cmimh_tf.command_line import UserError
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.files import atomic_path
from cmimh_tf.metrics.retrieval import pair_ranks
from cmimh_tf.model import CMIMH
from cmimh_tf.progress import ProgressBar, format_seconds
from cmimh_tf.terms import TERMS
from cmimh_tf.training.run_folder import RunFolder

# Small data sets have hundreds of epochs of a few steps: not each of them is worth a line or a checkpoint.
_MOST_REPORTS = 50

SCORE_NAME = "validation_score"


def is_reported(epoch: int, epochs: int) -> bool:
    """Whether something is written after `epoch` (from 0): after at most 50 of them, and after the last."""
    return (epoch + 1) % math.ceil(epochs / _MOST_REPORTS) == 0 or epoch + 1 == epochs


class TrainingDiverged(UserError):
    """A term of the objective became NaN or infinite."""


class DivergenceGuard(keras.callbacks.Callback):
    """Raises `TrainingDiverged` with the step, the terms, and the last checkpoint from before.

    Args:
        steps_per_epoch: to count the steps of the whole run.
        checkpoint_folder: named in the message; None when nothing is saved.
    """

    def __init__(self, steps_per_epoch: int, checkpoint_folder: str | None):
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self.checkpoint_folder = checkpoint_folder
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        # Running means stay NaN once a value was, so the first step that shows one is the step that caused it.
        broken = [name for name, value in (logs or {}).items() if not math.isfinite(value)]
        if not broken:
            return
        terms = [name for name in broken if name != "loss"] or broken
        checkpoint = tf.train.latest_checkpoint(self.checkpoint_folder) if self.checkpoint_folder else None
        saved = f"The last good checkpoint is {checkpoint}." if checkpoint else "There is no earlier checkpoint."
        raise TrainingDiverged(
            f"Training diverged at step {self.epoch * self.steps_per_epoch + batch + 1} (epoch {self.epoch + 1}): "
            f"{', '.join(terms)} is not finite. {saved} "
            "Lower optimizer.encoder_rate, set optimizer.gradient_clip_norm=50, or lower the loss weights."
        )


class HistoryFile(keras.callbacks.Callback):
    """Keeps one row per epoch, and writes history.csv whenever there is a checkpoint.

    Args:
        folder: the run's folder; None keeps the rows in memory.
        epochs: of the whole run.
        epochs_done: epochs of an earlier process to keep; later rows are dropped.
    """

    def __init__(self, folder: RunFolder | None, epochs: int, epochs_done: int):
        super().__init__()
        self.folder = folder
        self.epochs = epochs
        self.rows: list[dict[str, float]] = folder.read_history(epochs_done) if folder else []

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.rows.append({"epoch": epoch + 1, **{name: float(value) for name, value in (logs or {}).items()}})
        if self.folder and (is_reported(epoch, self.epochs) or self.model.stop_training):
            self.folder.write_history(self.rows)


class LabelFreeEarlyStopping(keras.callbacks.Callback):
    """Stops when the pair score of held-out pairs no longer rises, and keeps the best weights.

    Its state is the history's rows, so that a resumed run stops where an unbroken one would have.

    Args:
        validation: the held-out pairs.
        patience: epochs without a better score before stopping.
        folder: the run's folder, where the best weights are kept; None uses a temporary one.
        history: the rows of all epochs so far.
    """

    def __init__(self, validation: PairedData, patience: int, folder: RunFolder | None, history: HistoryFile):
        super().__init__()
        self.validation = validation
        self.patience = patience
        self.history = history
        self.best_weights = folder.best_weights if folder else Path(mkdtemp()) / "best.weights.h5"

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        model: CMIMH = self.model
        score = pair_score(model.hash_images(self.validation.image), model.hash_texts(self.validation.text))
        scores = self._scores()
        if logs is not None:
            logs[SCORE_NAME] = score
        if not scores or score > max(scores):
            with atomic_path(self.best_weights, suffix=".weights.h5", checksum=True) as temporary:
                model.save_weights(temporary)
        model.stop_training = self.is_exhausted([*scores, score])

    def is_exhausted(self, scores: list[float] | None = None) -> bool:
        """Whether the best score is `patience` epochs old."""
        scores = self._scores() if scores is None else scores
        return len(scores) > 0 and len(scores) - 1 - int(np.argmax(scores)) >= self.patience

    def restore_best(self, model: CMIMH) -> None:
        """Loads the weights of the best epoch into `model`."""
        verify(self.best_weights)
        model.load_weights(self.best_weights)

    def _scores(self) -> list[float]:
        return [row[SCORE_NAME] for row in self.history.rows]


def pair_score(image_codes: np.ndarray, text_codes: np.ndarray) -> float:
    """How well pairs find each other: 1 - mean rank / worst rank, over both directions.

    Args:
        image_codes: uint8 [pairs, code_length / 8].
        text_codes: uint8 [pairs, code_length / 8].

    Returns:
        1 when every pair comes first, about 0.5 by chance.
    """
    ranks = [pair_ranks(image_codes, text_codes), pair_ranks(text_codes, image_codes)]
    return float(1.0 - np.mean(ranks) / max(1, len(image_codes) - 1))


class TrainingProgress(keras.callbacks.Callback):
    """At most 50 lines with the terms of an epoch and the time left, and a bar within the epoch on a terminal.

    Args:
        epochs: of the whole run.
        steps_per_epoch: batches per epoch.
        stream: where to write; None writes to standard output.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, stream: TextIO | None = None):
        super().__init__()
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.stream = stream if stream is not None else sys.stdout
        self.first_epoch: int | None = None
        self.bar: ProgressBar | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if self.first_epoch is None:
            self.first_epoch, self.started_at = epoch, time.monotonic()
        if self.stream.isatty():
            self.bar = ProgressBar(self.steps_per_epoch, self._position(epoch), "steps", stream=self.stream, delay=0.0)

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        if self.bar is not None:
            self.bar.update()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        assert self.first_epoch is not None  # on_epoch_begin comes first
        if self.bar is not None:
            self.bar.close()
        if not is_reported(epoch, self.epochs):
            return
        done = epoch + 1 - self.first_epoch
        left = (time.monotonic() - self.started_at) / done * (self.epochs - epoch - 1)
        self.stream.write(f"{self._position(epoch)}  {format_seconds(left):>10} left  {_describe(logs or {})}\n")
        self.stream.flush()

    def _position(self, epoch: int) -> str:
        return f"epoch {epoch + 1:>{len(str(self.epochs))}}/{self.epochs}"


def _describe(logs: dict[str, float]) -> str:
    """The loss and its terms by their symbols, in the order of the table, then everything else."""
    symbols = {"loss": "loss", **{term.name: term.symbol for term in TERMS}}
    ordered = [name for name in symbols if name in logs] + [name for name in logs if name not in symbols]
    return "  ".join(f"{symbols.get(name, name.replace('_', ' '))} {logs[name]:.3f}" for name in ordered)


class ResumableCheckpoint(keras.callbacks.Callback):
    """Saves all weights and optimizer states, after each epoch, but at most 50 times, and restores the newest.

    Samples and data order are functions of seed, step and epoch, so nothing else needs to be kept.

    Args:
        folder: where the checkpoints are.
        model: the built and compiled model.
        epochs: of the whole run.

    Raises:
        DamagedFile: if the list of checkpoints cannot be read.
    """

    def __init__(self, folder: Path, model: CMIMH, epochs: int):
        super().__init__()
        self.epochs = epochs
        self.epochs_done = tf.Variable(0, dtype=tf.int64, trainable=False)
        checkpoint = tf.train.Checkpoint(
            epochs_done=self.epochs_done,
            # Metric states are left out: they start anew with each epoch.
            weights=[v.value for v in model.weights],
            optimizers=[v.value for v in model.optimizer.variables],
        )
        try:
            self.manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
        except UnicodeDecodeError as error:
            raise _damaged(folder / "checkpoint", error) from error

    def restore(self) -> int:
        """Restores the newest checkpoint.

        Returns:
            The number of epochs that are done; 0 when there is no checkpoint.

        Raises:
            DamagedFile: if the checkpoint does not fit the model.
        """
        path = self.manager.latest_checkpoint
        if path is None:
            return 0
        try:
            self.manager.checkpoint.restore(path).assert_consumed()
        except (AssertionError, ValueError, IndexError, RuntimeError, tf.errors.OpError) as error:
            raise _damaged(path, error) from error
        return int(self.epochs_done.numpy())

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if not is_reported(epoch, self.epochs) and not self.model.stop_training:
            return
        self.epochs_done.assign(epoch + 1)
        self.manager.save(checkpoint_number=epoch + 1)


def _damaged(path: Path | str, error: Exception) -> DamagedFile:
    reason = str(error).partition("\n")[0]
    return DamagedFile(
        f"The checkpoint {path} does not fit this version of the model or is damaged ({reason}). Delete the "
        "folder checkpoints/, or give --overwrite, to train from the start."
    )
