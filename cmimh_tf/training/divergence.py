"""Stops a run at the step where a term is no longer a number."""

import math

import keras


class TrainingDiverged(RuntimeError):
    """A term of the objective became NaN or infinite."""


class DivergenceGuard(keras.callbacks.Callback):
    """Raises `TrainingDiverged` with the step, the terms, and the last checkpoint from before.

    Args:
        steps_per_epoch: to turn a batch into a step of the whole run.
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
        # Running means stay NaN once a value was, so the first step at which one is seen is the guilty one.
        broken = [name for name, value in (logs or {}).items() if not math.isfinite(value)]
        if not broken:
            return
        terms = [name for name in broken if name != "objective"] or broken
        saved = (
            f"The last good checkpoint is the one after epoch {self.epoch} in {self.checkpoint_folder}."
            if self.checkpoint_folder and self.epoch
            else "There is no checkpoint from before."
        )
        raise TrainingDiverged(
            f"Training diverged at step {self.epoch * self.steps_per_epoch + batch + 1} (epoch {self.epoch + 1}): "
            f"{', '.join(terms)} is not finite. {saved} "
            "Lower optimizer.encoder_rate, set optimizer.gradient_clip_norm=50, or lower the loss weights."
        )
