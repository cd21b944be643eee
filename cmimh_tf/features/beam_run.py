"""Runs a task on Apache Beam in this process, and collects progress and errors from its workers.

There is only one process because processes started by Beam keep running for half a minute after their command is
killed, and would compete with the next one. TensorFlow's threads use all processors.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cmimh_tf.command_line import user_message
from cmimh_tf.progress import ProgressBar

_PROGRESS_FILE = ".progress"
_SECONDS_BETWEEN_UPDATES = 0.5
# The first error of each folder's workers.
_errors: dict[Path, str] = {}


def run_on_beam(task: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Calls `task` for each item on Beam's DirectRunner.

    Args:
        task: picklable. It must tolerate repeated calls: Beam may retry an item that failed.
        items: picklable.

    Raises:
        ImportError: if apache_beam is not installed.
    """
    if importlib.util.find_spec("apache_beam") is None:
        raise ImportError("This needs Apache Beam. Install with: pip install apache-beam==2.61.0")
    with warnings.catch_warnings():
        # Google's libraries warn about Python versions that they will drop in the future.
        warnings.simplefilter("ignore", FutureWarning)
        import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    # Without `flags`, Beam would parse the flags of the command.
    options = PipelineOptions(flags=[], runner="DirectRunner", direct_running_mode="in_memory", direct_num_workers=1)
    with _quiet_errors(), beam.Pipeline(options=options) as root:
        root | "Items" >> beam.Create(items) | "Work" >> beam.Map(task)


@dataclass(frozen=True)
class WorkerReports:
    """Progress and the first error of the workers. Beam pickles a task, so workers report through a file and a module.

    Args:
        folder: a folder that all workers can write to.
    """

    folder: Path

    def clear(self) -> None:
        """Removes the reports of an earlier run."""
        _errors.pop(self.folder, None)
        (self.folder / _PROGRESS_FILE).unlink(missing_ok=True)

    def add(self, count: int) -> None:
        """Reports finished items: appends one byte per item, which is atomic."""
        with (self.folder / _PROGRESS_FILE).open("ab", buffering=0) as file:
            file.write(b"." * count)

    @contextmanager
    def record_error(self) -> Iterator[None]:
        """Records the message of an error in the body. Beam would change its type and surround it with a traceback."""
        try:
            yield
        except Exception as error:
            if (message := user_message(error)) is not None:
                # In memory, because the disk may be full.
                _errors.setdefault(self.folder, message)
            raise

    def error(self) -> str | None:
        """The recorded message, or None."""
        return _errors.get(self.folder)

    @contextmanager
    def update(self, bar: ProgressBar) -> Iterator[None]:
        """Updates `bar` with the finished items while the body runs."""
        finished = threading.Event()

        def poll() -> None:
            done = 0
            while True:
                is_last = finished.wait(_SECONDS_BETWEEN_UPDATES)
                count = self._count()
                bar.update(count - done)
                done = count
                if is_last:
                    return

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            finished.set()
            thread.join()

    def _count(self) -> int:
        try:
            return os.stat(self.folder / _PROGRESS_FILE).st_size
        except FileNotFoundError:
            return 0


@contextmanager
def _quiet_errors() -> Iterator[None]:
    """Prevents Beam from printing the traceback of an error that it also raises."""
    logger = logging.getLogger("apache_beam.runners.common")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
