"""Output for the user, while everything that TFX, Beam and TensorFlow print goes to a log file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_stream: TextIO | None = None


def stream() -> TextIO:
    """The user's screen: the real standard output, even while it is redirected to a log."""
    return _stream or sys.stdout


def say(line: str = "") -> None:
    """Prints a line for the user."""
    print(line, file=stream(), flush=True)


def relative_path(path: Path) -> str:
    """A path for the screen: relative to the current folder if it is below it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


@contextmanager
def output_to_log(path: Path) -> Iterator[None]:
    """Redirects file descriptors 1 and 2 to a file: C++ code in TensorFlow and Beam writes to them directly.

    Args:
        path: the log file; new output is appended.
    """
    global _stream
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    _stream = io.TextIOWrapper(os.fdopen(os.dup(saved[0]), "wb", 0), write_through=True)
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for descriptor, original in zip((1, 2), saved, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
        os.close(log)
        _stream.close()
        _stream = None
