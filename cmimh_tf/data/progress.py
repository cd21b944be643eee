"""How much of a long piece of work is left, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

_SECONDS_BEFORE_PROGRESS = 2.0


def with_progress(count: int, what: str) -> Iterator[int]:
    """Yields 0..count-1 and, once it takes longer than a few seconds, says on stderr how much is left."""
    on_terminal = sys.stderr.isatty()
    line_start, line_end, interval = ("\r", "", 1.0) if on_terminal else ("", "\n", 10.0)
    start = time.monotonic()
    next_report = start + _SECONDS_BEFORE_PROGRESS
    shown = False
    for row in range(count):
        now = time.monotonic()
        if row > 0 and now >= next_report:
            seconds_left = (now - start) / row * (count - row)
            message = f"{line_start}{what}: {row} of {count}, {seconds_left:.0f} s left "
            print(message, end=line_end, file=sys.stderr, flush=True)
            next_report, shown = now + interval, True
        yield row
    if shown:
        print(f"{line_start}{what}: {count} of {count}, done    ", file=sys.stderr, flush=True)
