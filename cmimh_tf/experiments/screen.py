"""What an experiment shows while it runs: a line for each cell that ends, and what is running on a terminal."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from cmimh_tf.experiments.cell import Cell

_LOG_TAIL_BYTES = 2000


class Screen:
    """Progress of an experiment.

    Args:
        names: what cells are called; None takes their titles.
        stream: where to write; None writes to standard output.
    """

    def __init__(self, names: Mapping[Cell, str] | None = None, stream: TextIO | None = None) -> None:
        self.names = names or {}
        self.stream = stream if stream is not None else sys.stdout
        self.total = self.done = 0

    def begin(self, total: int, done: int) -> None:
        """Says how many cells there are, and how many are done already."""
        self.total, self.done = total, done
        already = f", {done} of them measured before" if done else ""
        self._line(f"{total} cells{already}")

    def started(self, cell: Cell) -> None:
        """Notes that a cell begins; a terminal shows it in its moving line."""
        if not self.stream.isatty():
            self._line(f"started: {self._name(cell)}")

    def ended(self, cell: Cell, seconds: float, error: str | None, left: float) -> None:
        """One line for a cell that is over."""
        # Not at the top: it brings keras, which the process that only watches others needs for nothing else.
        from cmimh_tf.training.progress import format_seconds

        self.done += 1
        outcome = f"FAILED, {error}" if error else f"done in {format_seconds(seconds)}"
        width = len(str(self.total))
        self._line(
            f"[{self.done:>{width}}/{self.total}] {self._name(cell)}: {outcome}; about {format_seconds(left)} left"
        )

    def redraw(self, running: Sequence[tuple[Cell, float, Path]], left: float) -> None:
        """The moving line of a terminal: what runs, since when, at which epoch.

        Args:
            running: cells with the moment of their beginning and the path of their log.
            left: seconds until all is done.
        """
        if not self.stream.isatty() or not running:
            return
        from cmimh_tf.training.progress import format_seconds

        now = time.monotonic()
        parts = [f"{self._name(cell)}{_position(log)} {format_seconds(now - begun)}" for cell, begun, log in running]
        self.stream.write(f"\r{self.done}/{self.total}, about {format_seconds(left)} left | {' | '.join(parts)}\033[K")
        self.stream.flush()

    def _name(self, cell: Cell) -> str:
        return self.names.get(cell, cell.title)

    def _line(self, text: str) -> None:
        clear = "\r\033[K" if self.stream.isatty() else ""
        self.stream.write(f"{clear}{text}\n")
        self.stream.flush()


def _position(log: Path) -> str:
    """ " (epoch 3/40)" from the last line of a training's log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    last = next((line for line in reversed(lines) if line.startswith("epoch")), "")
    return f" ({' '.join(last.split()[:2])})" if last else ""
