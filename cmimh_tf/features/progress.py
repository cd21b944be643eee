"""How many pairs have their features, and how long the others will take."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_SECONDS_BETWEEN_LINES = 10.0


class PairProgress:
    """Tells the time left: on a terminal in one line that moves, else in a line every few seconds.

    Args:
        total: pairs of the whole work.
        stream: where to write; None writes to standard error.
    """

    def __init__(self, total: int, stream: TextIO | None = None):
        self.total = total
        self._stream = stream if stream is not None else sys.stderr
        self._started = self._told = time.monotonic()
        self._done = self._skipped = 0

    def skip(self, count: int) -> None:
        """Counts pairs of an earlier run, which say nothing about the speed."""
        self._done += count
        self._skipped += count

    def add(self, count: int) -> None:
        """Counts pairs, and tells if it is time."""
        from cmimh_tf.training.progress import format_seconds

        self._done += count
        now, on_terminal, is_last = time.monotonic(), self._stream.isatty(), self._done >= self.total
        if not on_terminal and now - self._told < _SECONDS_BETWEEN_LINES:
            return
        self._told = now
        left = (now - self._started) / (self._done - self._skipped) * (self.total - self._done)
        line = f"features of {self._done:,} of {self.total:,} pairs, {format_seconds(left)} left"
        end = "\n" if is_last or not on_terminal else ""
        self._stream.write(f"\r{line}\033[K{end}" if on_terminal else f"{line}\n")
        self._stream.flush()
