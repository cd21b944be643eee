"""The terms after each epoch, on disk before the epoch's checkpoint is."""

import keras

from cmimh_tf.training.run_folder import RunFolder


class HistoryFile(keras.callbacks.Callback):
    """Keeps one row an epoch, and history.csv up to date.

    Args:
        folder: the run's folder; None keeps the rows in memory.
        epochs_done: epochs of an earlier process to take over; rows beyond them are dropped.
    """

    def __init__(self, folder: RunFolder | None, epochs_done: int):
        super().__init__()
        self.folder = folder
        self.rows: list[dict[str, float]] = folder.read_history(epochs_done) if folder else []

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.rows.append({"epoch": epoch + 1, **{name: float(value) for name, value in (logs or {}).items()}})
        if self.folder:
            self.folder.write_history(self.rows)
