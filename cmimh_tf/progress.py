"""Progress bars with the time left: one moving line on a terminal, a line now and then in a log file."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

# A short piece of work needs no bar.
_SILENT_SECONDS = 2.0
_SECONDS_BETWEEN_LINES = 10.0


class ProgressBar(tqdm):
    """tqdm's bar; where lines cannot be drawn over, as in a log file, it prints a whole line every 10 seconds.

    Args:
        total: how many items there are.
        description: what is being done, such as "hashing".
        unit: what is counted, such as "pairs".
        stream: where to write; None writes to standard error.
        initial: items that an earlier run has done; they do not count for the speed.
        delay: seconds before anything is shown.

    Example:
        >>> with ProgressBar(len(rows), "hashing", "pairs") as bar:
        ...     for block in blocks:
        ...         hash_block(block)
        ...         bar.update(len(block))
    """

    def __init__(
        self,
        total: int,
        description: str,
        unit: str = "items",
        *,
        stream: TextIO | None = None,
        initial: int = 0,
        delay: float = _SILENT_SECONDS,
    ):
        stream = sys.stderr if stream is None else stream
        self.on_terminal = stream.isatty()
        self.printed: int | None = None
        super().__init__(
            total=total,
            desc=description,
            unit=f" {unit}",
            file=stream,
            initial=initial,
            delay=delay,
            leave=not self.on_terminal,
            dynamic_ncols=self.on_terminal,
            mininterval=0.2 if self.on_terminal else _SECONDS_BETWEEN_LINES,
            maxinterval=_SECONDS_BETWEEN_LINES,
            bar_format=None if self.on_terminal else "{desc}: {n_fmt} of {total_fmt}{unit}, {remaining} left",
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Draws the bar over its last state, or prints it as a line of its own."""
        if self.on_terminal:
            return super().display(msg, pos)
        if self.n not in (self.initial, self.printed):
            self.fp.write(f"{self}\n")
            self.fp.flush()
            self.printed = self.n
        return True

    def close(self) -> None:
        """Ends the bar: it vanishes from a terminal; a log gets the last line, unless nothing was ever shown."""
        if not self.on_terminal and not self.disable:
            if self.printed not in (None, self.n):
                self.display()
            # tqdm would add an empty line.
            self.fp = io.StringIO()
        super().close()


def track(
    items: Iterable[Item], total: int, description: str, unit: str = "items", stream: TextIO | None = None
) -> Iterable[Item]:
    """Yields `items` and shows how many are done.

    Example:
        >>> for round in track(range(50), 50, "PDH", "rounds"):
        ...     ...
    """
    with ProgressBar(total, description, unit, stream=stream) as bar:
        for item in items:
            yield item
            bar.update()


def format_seconds(seconds: float) -> str:
    """42 -> "42 s", 130 -> "2 min 10 s", 4000 -> "1 h 06 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
