"""One training run from arrays to a saved model: resumable, monitored, and the same for the same seed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import keras
import numpy as np

from cmimh_tf.config import CMIMHConfig, batches_per_epoch
from cmimh_tf.data.pairs import PairedData
from cmimh_tf.files import remove_folder
from cmimh_tf.model import CMIMH
from cmimh_tf.stored_rows import Rows
from cmimh_tf.training.callbacks import (
    DivergenceGuard,
    HistoryFile,
    LabelFreeEarlyStopping,
    ResumableCheckpoint,
    TrainingProgress,
)
from cmimh_tf.training.health import HealthCheck
from cmimh_tf.training.neighbourhood import find_neighbourhood
from cmimh_tf.training.run_folder import RunFolder

_HEALTH_SAMPLE_ROWS = 1024


@dataclass(frozen=True)
class TrainedModel:
    """The result of a training.

    Attributes:
        model: the model, with the weights of its best epoch if it stopped early.
        history: the loss and its terms after each epoch.
        problems: signs of collapse or saturation at the end; empty when all is well.
        seconds: spent training, in this process.
    """

    model: CMIMH
    history: list[dict[str, float]]
    problems: list[str]
    seconds: float


def train_model(
    train: PairedData,
    config: CMIMHConfig,
    out: str | Path | None = None,
    *,
    progress: TextIO | None = None,
    callbacks: list[keras.callbacks.Callback] | None = None,
) -> TrainedModel:
    """Trains a CMIMH model on paired features, as `CMIMH.fit` does, with checkpoints and health checks around it.

    With `out`, the run can be killed at any moment: the same call continues from the last checkpoint and ends in
    the same weights as an unbroken run. At the end the model is saved there; `load_model(out)` loads it.

    Args:
        train: the training pairs; labels are not used.
        config: the resolved configuration.
        out: folder for the model, checkpoints, history and TensorBoard logs; None keeps everything in memory.
        progress: stream for the progress; None is standard output.
        callbacks: more callbacks for `fit`.

    Returns:
        The model with its history.

    Raises:
        ValueError: if there are too few pairs, or `out` has checkpoints of another configuration or other pairs.
        TrainingDiverged: if a term becomes NaN or infinite.
    """
    fitted, validation = split_validation(train, config.training.validation_share, config.seed)
    if len(fitted) < 2:
        raise ValueError(f"`train` must have at least 2 pairs to train on. Received: {len(fitted)}.")
    epochs = config.training.num_epochs(len(fitted))
    steps = batches_per_epoch(len(fitted), config.training.batch_size)

    model = CMIMH(config=config, image_units=fitted.image.shape[1], text_units=fitted.text.shape[1])
    model.compile()
    folder = RunFolder(Path(out)) if out is not None else None
    if folder:
        pairs = PairedData(train.image, train.text)
        folder.claim_checkpoints({"config": config.to_dict(), "train_fingerprint": pairs.fingerprint()})
    checkpoint = ResumableCheckpoint(folder.checkpoints, model, epochs) if folder else None
    first_epoch = checkpoint.restore() if checkpoint else 0
    history = HistoryFile(folder, epochs, first_epoch)
    sample = fitted.image[:_HEALTH_SAMPLE_ROWS], fitted.text[:_HEALTH_SAMPLE_ROWS]
    health = HealthCheck(*sample, epochs, progress)
    stopping = LabelFreeEarlyStopping(validation, config.training.patience, folder, history) if validation else None

    monitors: list[keras.callbacks.Callback] = [DivergenceGuard(steps, str(folder.checkpoints) if folder else None)]
    # Order matters: the validation score enters the logs that all later callbacks see, and the checkpoint comes last,
    # so that everything it refers to is already on disk.
    monitors += [stopping] if stopping else []
    monitors += [history, health, TrainingProgress(epochs, steps, progress)]
    monitors += [keras.callbacks.TensorBoard(str(folder.tensorboard), write_graph=False)] if folder else []
    monitors += [*(callbacks or ()), *([checkpoint] if checkpoint else [])]

    started = time.monotonic()
    if first_epoch < epochs and not (stopping and stopping.is_exhausted()):
        columns: dict[str, Rows] = {"image": fitted.image, "text": fitted.text}
        if model.needs_coordinates:
            columns |= find_neighbourhood(
                fitted.image, fitted.text, config.neighbourhood, folder.neighbourhood if folder else None
            )
        model.fit(
            columns,
            epochs=epochs,
            initial_epoch=first_epoch,
            callbacks=monitors,
            verbose=0,
        )
    elif history.rows:
        # An earlier process finished all epochs, but may have been killed before it reported problems.
        health.set_model(model)
        health.epochs = len(history.rows)
        health.on_epoch_end(len(history.rows) - 1, history.rows[-1])
    if stopping:
        stopping.restore_best(model)
    if folder:
        folder.save_model(model)
        remove_folder(folder.neighbourhood)
    return TrainedModel(model, history.rows, health.problems, time.monotonic() - started)


def split_validation(train: PairedData, share: float, seed: int) -> tuple[PairedData, PairedData | None]:
    """Holds out a seeded share of the training pairs.

    Args:
        train: the training pairs.
        share: of the pairs to hold out, in [0, 1); 0 holds out none.
        seed: of the choice.

    Returns:
        The pairs to train on, and the held-out pairs or None.
    """
    count = round(share * len(train))
    if count == 0:
        return train, None
    order = np.random.default_rng([seed, 1]).permutation(len(train))
    return train.take(np.sort(order[count:])), train.take(np.sort(order[:count]))
