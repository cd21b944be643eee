"""One line an epoch with every term and the time left; a moving bar within the epoch on a terminal."""

import sys
import time
from typing import TextIO

import keras

_BAR_WIDTH = 20
_REDRAW_SECONDS = 0.2
_SHORT_NAMES = {
    "objective": "objective",
    "reconstruction": "reconstruction",
    "cross_reconstruction": "cross reconstruction",
    "mutual_information": "JS",
    "modality_gap": "SKL",
    "total_correlation": "TC",
    "discriminator": "discriminator",
    "balance": "balance",
    "validation_score": "validation score",
}


class TrainingProgress(keras.callbacks.Callback):
    """Shows how far a training is.

    Args:
        epochs: of the whole run.
        steps_per_epoch: batches an epoch.
        stream: where to write; None writes to standard output.
    """

    def __init__(self, epochs: int, steps_per_epoch: int, stream: TextIO | None = None):
        super().__init__()
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.stream = stream if stream is not None else sys.stdout
        self.epoch = 0
        self.first_epoch: int | None = None
        self.redrawn_at = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        self.epoch = epoch
        if self.first_epoch is None:
            self.first_epoch, self.started_at = epoch, time.monotonic()

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        now = time.monotonic()
        if not self.stream.isatty() or now - self.redrawn_at < _REDRAW_SECONDS:
            return
        self.redrawn_at = now
        done = (batch + 1) / self.steps_per_epoch
        filled = int(_BAR_WIDTH * done)
        bar = "#" * filled + "." * (_BAR_WIDTH - filled)
        self.stream.write(f"\r{self._position()} [{bar}] {self._time_left(done)}  {_terms(logs or {})}\033[K")
        self.stream.flush()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        clear = "\r\033[K" if self.stream.isatty() else ""
        self.stream.write(f"{clear}{self._position()} {self._time_left(1.0)}  {_terms(logs or {})}\n")
        self.stream.flush()

    def _position(self) -> str:
        width = len(str(self.epochs))
        return f"epoch {self.epoch + 1:>{width}}/{self.epochs}"

    def _time_left(self, done_of_epoch: float) -> str:
        assert self.first_epoch is not None  # on_epoch_begin comes first
        done = self.epoch - self.first_epoch + done_of_epoch
        left = (time.monotonic() - self.started_at) / done * (self.epochs - self.first_epoch - done)
        return f"{format_seconds(left)} left"


def format_seconds(seconds: float) -> str:
    """42 -> "42 s", 130 -> "2 min 10 s", 4000 -> "1 h 07 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _terms(logs: dict[str, float]) -> str:
    return "  ".join(f"{_SHORT_NAMES.get(name, name)} {value:.3f}" for name, value in logs.items())
