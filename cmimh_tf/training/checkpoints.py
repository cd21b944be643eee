"""Checkpoints that survive a kill at any moment and resume to the same weights."""

from pathlib import Path

import keras
import tensorflow as tf

from cmimh_tf.models.cmimh import CMIMH


class ResumableCheckpoint(keras.callbacks.Callback):
    """Saves all weights and optimiser states after each epoch, and restores the newest before the first.

    Samples and data order are functions of seed, step and epoch, so nothing else needs to be kept.

    Args:
        folder: where the checkpoints are.
        model: the compiled model.
    """

    def __init__(self, folder: Path, model: CMIMH):
        super().__init__()
        self.epochs_done = tf.Variable(0, dtype=tf.int64, trainable=False)
        checkpoint = tf.train.Checkpoint(
            epochs_done=self.epochs_done,
            # Metric states are left out: they start anew with each epoch.
            weights=[v.value for v in model.weights],
            optimizers=[v.value for v in model.grouped_optimizers.variables],
        )
        self.manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)

    def restore(self) -> int:
        """Restores the newest checkpoint.

        Returns:
            The number of epochs that are done; 0 when there is no checkpoint.
        """
        path = self.manager.latest_checkpoint
        if path is None:
            return 0
        self.manager.checkpoint.restore(path).assert_consumed()
        return int(self.epochs_done.numpy())

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.epochs_done.assign(epoch + 1)
        self.manager.save(checkpoint_number=epoch + 1)
