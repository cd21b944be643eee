"""Runs work on Apache Beam, on this machine."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from typing import Any


def run_on_beam(task: Callable[[Any], None], items: Sequence[Any], workers: int = 1) -> None:
    """Calls `task` on each item, by Beam's DirectRunner.

    Args:
        task: picklable; its effects are what counts, since Beam may call it twice on an item that failed.
        items: picklable.
        workers: 1 runs in this process, more in as many others.

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
    options = PipelineOptions(
        flags=[],
        runner="DirectRunner",
        direct_running_mode="in_memory" if workers == 1 else "multi_processing",
        direct_num_workers=workers,
    )
    with beam.Pipeline(options=options) as root:
        (
            root
            | "Items" >> beam.Create(items)
            # Without it one worker would get all.
            | "Spread" >> beam.Reshuffle()
            | "Work" >> beam.Map(task)
        )
