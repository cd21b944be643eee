"""Counts the rounds of a fit on standard error, with the time left, once it takes more than a few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TextIO

_SILENT_SECONDS = 3.0
_REDRAW_SECONDS = 0.5
# Where lines cannot be drawn over, as in a log file.
_LINE_SECONDS = 15.0


def count_rounds(num_rounds: int, label: str, stream: TextIO | None = None) -> Iterator[int]:
    """Yields 0, 1, ... num_rounds - 1 and shows how far the loop over them is.

    A loop that is done within three seconds shows nothing. On a terminal one line is drawn over, and erased
    at the end; elsewhere a line is added every 15 seconds.

    Args:
        num_rounds: how many.
        label: what is being done, such as "PDH, round".
        stream: where to write; None writes to standard error.
    """
    stream = sys.stderr if stream is None else stream
    on_terminal = stream.isatty()
    started = time.monotonic()
    drawn_at = None
    for done in range(num_rounds):
        now = time.monotonic()
        pause = _REDRAW_SECONDS if on_terminal else _LINE_SECONDS
        if done and now - started > _SILENT_SECONDS and (drawn_at is None or now - drawn_at > pause):
            # Not at the top: it imports keras, which most baselines do without.
            from cmimh_tf.training.progress import format_seconds

            left = format_seconds((now - started) / done * (num_rounds - done))
            text = f"{label} {done}/{num_rounds}, {left} left"
            stream.write(f"\r{text}\033[K" if on_terminal else f"{text}\n")
            stream.flush()
            drawn_at = now
        yield done
    if on_terminal and drawn_at is not None:
        stream.write("\r\033[K")
        stream.flush()
