"""One training run from arrays to a model: resumable, watched, and the same for the same seed."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import keras

from cmimh_tf.config import CMIMHConfig
from cmimh_tf.data.paired import PairedData
from cmimh_tf.models.cmimh import CMIMH
from cmimh_tf.training.batches import steps_per_epoch, training_batches
from cmimh_tf.training.checkpoints import ResumableCheckpoint
from cmimh_tf.training.divergence import DivergenceGuard
from cmimh_tf.training.health import HealthCheck
from cmimh_tf.training.history import HistoryFile
from cmimh_tf.training.neighbourhood import find_neighbourhood
from cmimh_tf.training.progress import TrainingProgress
from cmimh_tf.training.run_folder import RunFolder
from cmimh_tf.training.validation import LabelFreeEarlyStopping, split_validation

_HEALTH_SAMPLE_ROWS = 1024


@dataclass(frozen=True)
class TrainedModel:
    """What a training gave.

    Attributes:
        model: the model, with the weights of its best epoch if it stopped early.
        history: the terms after each epoch.
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
    """Trains a CMIMH model on paired features.

    With `out`, the run can be killed at any moment: the same call goes on from the last finished epoch and ends in
    the same weights as an unbroken one.

    Args:
        train: the training pairs; labels are not looked at.
        config: the resolved configuration.
        out: folder for checkpoints, history and TensorBoard logs; None keeps everything in memory.
        progress: where the progress goes; None is standard output.
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
    batch_size, epochs = config.training.batch_size, config.training.epochs
    steps = steps_per_epoch(len(fitted), batch_size)

    model = CMIMH(config, fitted.image.shape[1], fitted.text.shape[1])
    model.adapt(fitted.image, fitted.text)
    model.compile(total_steps=steps * epochs)

    folder = RunFolder(Path(out)) if out is not None else None
    if folder:
        pairs = PairedData(train.image, train.text)
        folder.claim_checkpoints({"config": config.to_dict(), "train_fingerprint": pairs.fingerprint()})
    checkpoint = ResumableCheckpoint(folder.checkpoints, model) if folder else None
    first_epoch = checkpoint.restore() if checkpoint else 0
    history = HistoryFile(folder, first_epoch)
    health = HealthCheck(fitted.image[:_HEALTH_SAMPLE_ROWS], fitted.text[:_HEALTH_SAMPLE_ROWS], progress)
    stopping = LabelFreeEarlyStopping(validation, config.training.patience, folder, history) if validation else None

    watchers: list[Any] = [DivergenceGuard(steps, str(folder.checkpoints) if folder else None)]
    # Order matters: the validation score enters the logs that all later callbacks see, and the checkpoint comes
    # last, so that whatever it vouches for is already on disk.
    watchers += [stopping] if stopping else []
    watchers += [history, health, TrainingProgress(epochs, steps, progress)]
    watchers += [keras.callbacks.TensorBoard(str(folder.tensorboard), write_graph=False)] if folder else []
    watchers += [*(callbacks or ()), *([checkpoint] if checkpoint else [])]

    started = time.monotonic()
    if first_epoch < epochs and not (stopping and stopping.is_exhausted()):
        model.fit(
            training_batches(
                fitted.image,
                fitted.text,
                batch_size,
                config.seed,
                first_epoch,
                epochs,
                find_neighbourhood(fitted.image, fitted.text, config.neighbourhood),
            ),
            shuffle=False,
            steps_per_epoch=steps,
            initial_epoch=first_epoch,
            epochs=epochs,
            callbacks=watchers,
            verbose=0,
        )
    elif history.rows:
        # All epochs were done by an earlier process, which may not have lived to say what it saw.
        health.set_model(model)
        health.on_epoch_end(len(history.rows) - 1, history.rows[-1])
    if stopping:
        stopping.restore_best(model)
    return TrainedModel(model, history.rows, health.problems, time.monotonic() - started)
