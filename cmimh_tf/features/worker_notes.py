"""What Beam's workers tell the command that started them: Beam works on copies, so that no object is shared."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cmimh_tf.features.progress import PairProgress

_PROGRESS_FILE = ".progress"
_ERROR_FILE = ".error"
_SECONDS_BETWEEN_LOOKS = 0.5
# What a user can cure, as in `cmimh_tf.command_line`.
_CURABLE = (ValueError, TypeError, OSError, ImportError)


@dataclass(frozen=True)
class WorkerNotes:
    """Two small files in a folder: one byte for each pair that is done, and the first error.

    Args:
        folder: that all workers see.
    """

    folder: Path

    def clear(self) -> None:
        """Removes what an earlier run told."""
        for name in (_PROGRESS_FILE, _ERROR_FILE):
            (self.folder / name).unlink(missing_ok=True)

    def add(self, count: int) -> None:
        """Counts pairs, in a worker. Appending a few bytes is one step, whoever else does so."""
        with (self.folder / _PROGRESS_FILE).open("ab", buffering=0) as file:
            file.write(b"." * count)

    @contextmanager
    def keep_error(self) -> Iterator[None]:
        """Keeps the sentence of an error that a user can cure: Beam buries it in a traceback, or loses its type."""
        # Late: TensorFlow takes seconds to import, and its errors are no OSErrors, not even that of a full disk.
        import tensorflow as tf

        try:
            yield
        except (*_CURABLE, tf.errors.OpError) as error:
            (self.folder / _ERROR_FILE).write_text(str(error), encoding="utf-8")
            raise

    def error(self) -> str | None:
        """The sentence, or None."""
        path = self.folder / _ERROR_FILE
        return path.read_text(encoding="utf-8") if path.exists() else None

    @contextmanager
    def shown_by(self, progress: PairProgress) -> Iterator[None]:
        """Has `progress` tell what workers count while the body runs."""
        over = threading.Event()

        def look() -> None:
            done = 0
            while True:
                is_last = over.wait(_SECONDS_BETWEEN_LOOKS)
                counted = self._counted()
                if counted > done:
                    progress.add(counted - done)
                    done = counted
                if is_last:
                    return

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _counted(self) -> int:
        try:
            return os.stat(self.folder / _PROGRESS_FILE).st_size
        except FileNotFoundError:
            return 0
