"""Runs work on Apache Beam, in this process.

Not in several: processes that Beam had started were still there half a minute after their command was killed, where
they would compute beside the next one. TensorFlow's own threads use all processors here.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


def run_on_beam(task: Callable[[Any], None], items: Sequence[Any]) -> None:
    """Calls `task` on each item, by Beam's DirectRunner.

    Args:
        task: picklable; its effects are what counts, since Beam may call it twice on an item that failed.
        items: picklable.

    Raises:
        ImportError: without apache_beam.
    """
    if importlib.util.find_spec("apache_beam") is None:
        raise ImportError("This needs Apache Beam. Install with: pip install apache-beam==2.61.0")
    with warnings.catch_warnings():
        # Google's libraries below Beam announce what they will require in years to come.
        warnings.simplefilter("ignore", FutureWarning)
        import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    # Without `flags` it would take the command's own.
    options = PipelineOptions(flags=[], runner="DirectRunner", direct_running_mode="in_memory", direct_num_workers=1)
    with _quiet_errors(), beam.Pipeline(options=options) as root:
        root | "Items" >> beam.Create(items) | "Work" >> beam.Map(task)


@contextmanager
def _quiet_errors() -> Iterator[None]:
    """Keeps Beam from printing the traceback of an error that it also raises."""
    logger = logging.getLogger("apache_beam.runners.common")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
