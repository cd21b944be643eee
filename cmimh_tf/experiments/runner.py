"""Measures the cells that have no result yet, several at a time."""

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, Protocol

from cmimh_tf.experiments.cell import Cell
from cmimh_tf.experiments.expected_time import ExpectedTime
from cmimh_tf.experiments.screen import Screen
from cmimh_tf.experiments.store import CellStore

_REDRAW_SECONDS = 1.0
# TensorFlow keeps memory that it once had: after a cell of this length a new process is cheap.
_FRESH_AFTER_SECONDS = 30.0
_BYTES_PER_JOB = 2 << 30
_COPIES_OF_DATA = 4


class CellWorker(Protocol):
    """What can measure one cell at a time; see `Worker`."""

    def start(self, cell: Cell) -> None: ...

    def wait_handles(self) -> list[Any]: ...

    def poll(self) -> tuple[bool, str | None]: ...

    def is_alive(self) -> bool: ...

    def close(self) -> None: ...


def run_cells(
    cells: Sequence[Cell],
    store: CellStore,
    make_worker: Callable[[], CellWorker],
    jobs: int,
    screen: Screen,
) -> dict[Cell, str]:
    """Measures every cell that `store` has no result of. One that fails does not stop the others.

    Args:
        cells: the cells; equal ones are measured once.
        store: where results are.
        make_worker: starts a worker.
        jobs: cells measured at the same time.
        screen: told of every start and end.

    Returns:
        The cells that failed, with their errors.
    """
    distinct = list(dict.fromkeys(cells))
    expected = ExpectedTime()
    pending = []
    for cell in distinct:
        result = store.load(cell)
        if result is None:
            pending.append(cell)
        else:
            expected.learn(cell, result["total_seconds"])
    # The longest first: the short ones then fill the gaps at the end.
    waiting = deque(sorted(pending, key=expected.seconds, reverse=True))
    screen.begin(len(distinct), len(distinct) - len(pending))
    failures: dict[Cell, str] = {}
    running: dict[CellWorker, tuple[Cell, float]] = {}
    idle: list[CellWorker] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell, worker = waiting.popleft(), idle.pop() if idle else make_worker()
                worker.start(cell)
                running[worker] = cell, time.monotonic()
                screen.started(cell)
            wait([handle for worker in running for handle in worker.wait_handles()], _REDRAW_SECONDS)
            for worker, (cell, started) in list(running.items()):
                is_over, error = worker.poll()
                if not is_over:
                    continue
                del running[worker]
                seconds = time.monotonic() - started
                if error is None:
                    expected.learn(cell, seconds)
                else:
                    failures[cell] = error
                    store.save_failure(cell, error)
                if worker.is_alive() and seconds < _FRESH_AFTER_SECONDS:
                    idle.append(worker)
                else:
                    worker.close()
                left = expected.left(waiting, [(cell, begun) for cell, begun in running.values()], jobs)
                screen.ended(cell, seconds, error, left)
            screen.redraw(
                [(cell, begun, store.log_path(cell)) for cell, begun in running.values()],
                expected.left(waiting, list(running.values()), jobs),
            )
    finally:
        for worker in [*running, *idle]:
            worker.close()
    return failures


def default_jobs(data_bytes: int) -> int:
    """As many cells at a time as there are cores and memory for, at least one.

    Args:
        data_bytes: size of the features, which every process holds.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _available_bytes() // (_BYTES_PER_JOB + _COPIES_OF_DATA * data_bytes)))


def threads_per_job(jobs: int) -> int | None:
    """The cores divided among jobs; None, no limit, for a job that has them all.

    One unlimited job gives exactly the figures of `python -m cmimh_tf.train`: the order in which TensorFlow adds
    depends on the number of threads, and so do the last digits.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return None if jobs == 1 else max(1, cores // jobs)


def _available_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):  # No Linux: nothing is known, one job is safe.
        return _BYTES_PER_JOB
