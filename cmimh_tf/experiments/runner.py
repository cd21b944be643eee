"""Measures the cells that have no result yet, several at a time, and shows the progress."""

import os
import re
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol, TextIO

from cmimh_tf.experiments.experiment import Cell
from cmimh_tf.experiments.results import CellStore
from cmimh_tf.progress import ProgressBar, format_seconds

_REDRAW_SECONDS = 1.0
# TensorFlow does not return memory: after a cell this long, starting a new process is cheap.
_FRESH_AFTER_SECONDS = 30.0
_BYTES_PER_JOB = 2 << 30
_COPIES_OF_DATA = 4
# Seconds per cell until the first cell of the method is done. Rough: they mainly set the order.
_FIRST_GUESS = {"CMIMH": 300.0, "CMIMH step time": 60.0, "DJSRH": 60.0, "PDH": 40.0}
_OTHER_GUESS = 10.0
_LOG_TAIL_BYTES = 2000


class CellWorker(Protocol):
    """Measures one cell at a time; see `cmimh_tf.experiments.worker.Worker`."""

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
    progress: "CellProgress",
) -> dict[Cell, str]:
    """Measures every cell without a result in `store`. A cell that fails does not stop the others.

    Args:
        cells: the cells; equal ones are measured once.
        store: holds the results.
        make_worker: starts a worker.
        jobs: cells measured at the same time.
        progress: notified of every start and end.

    Returns:
        The cells that failed, with their errors.
    """
    # Workers, which write there, would not end with a sentence.
    store.folder.mkdir(parents=True, exist_ok=True)
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
    progress.begin(len(distinct), len(distinct) - len(pending))
    failures: dict[Cell, str] = {}
    running: dict[CellWorker, tuple[Cell, float]] = {}
    idle: list[CellWorker] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                cell, worker = waiting.popleft(), idle.pop() if idle else make_worker()
                worker.start(cell)
                running[worker] = cell, time.monotonic()
                progress.started(cell)
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
                progress.ended(cell, seconds, error, expected.left(waiting, list(running.values()), jobs))
            progress.show_running(
                [(cell, begun, store.log_path(cell)) for cell, begun in running.values()],
                expected.left(waiting, list(running.values()), jobs),
            )
    finally:
        progress.close()
        for worker in [*running, *idle]:
            worker.close()
    return failures


class ExpectedTime:
    """Predicts how long cells take: the mean seconds of their method per training pair, over finished cells."""

    def __init__(self) -> None:
        self._rates: dict[str, list[float]] = defaultdict(list)

    def learn(self, cell: Cell, seconds: float) -> None:
        """Adds a finished cell."""
        self._rates[cell.method].append(seconds / self._size(cell))

    def seconds(self, cell: Cell) -> float:
        """The expected time of a cell."""
        rates = self._rates.get(cell.method)
        if rates:
            return self._size(cell) * sum(rates) / len(rates)
        return self._size(cell) / 5000 * _FIRST_GUESS.get(cell.method, _OTHER_GUESS)

    def left(self, waiting: Iterable[Cell], running: Sequence[tuple[Cell, float]], jobs: int) -> float:
        """Seconds until all cells are done.

        Args:
            waiting: cells that have not started.
            running: cells with their start, as given by time.monotonic.
            jobs: cells at a time.
        """
        now = time.monotonic()
        rest = [max(0.0, self.seconds(cell) - (now - begun)) for cell, begun in running]
        return max([(sum(rest) + sum(map(self.seconds, waiting))) / jobs, *rest])

    @staticmethod
    def _size(cell: Cell) -> float:
        """Work relative to other cells of the method, proportional to pairs times epochs."""
        epochs = cell.config.training.num_epochs(cell.split.num_train) if cell.config is not None else 40
        return cell.split.num_train * epochs / 40


class CellProgress:
    """One line per finished cell; on a terminal, also a bar with the cells that are running.

    Args:
        names: names of the cells; None uses their titles.
        stream: where to write; None writes to standard output.
    """

    def __init__(self, names: Mapping[Cell, str] | None = None, stream: TextIO | None = None) -> None:
        self.names = names or {}
        self.stream = stream if stream is not None else sys.stdout
        self.total = self.done = 0
        self.bar: ProgressBar | None = None

    def begin(self, total: int, done: int) -> None:
        """Prints the number of cells, and of those that have a result already."""
        self.total, self.done = total, done
        already = f", {done} of them measured before" if done else ""
        self._line(f"{total} cells{already}")
        if self.stream.isatty():
            self.bar = ProgressBar(total, "cells", "cells", stream=self.stream, initial=done, delay=0)
            # Without tqdm's own estimate: cells of different methods take different times.
            self.bar.bar_format = "{n_fmt}/{total_fmt} |{bar:20}|{postfix}"

    def started(self, cell: Cell) -> None:
        """Prints the start of a cell to a log file; a terminal has the bar."""
        if self.bar is None:
            self._line(f"started: {self._name(cell)}")

    def ended(self, cell: Cell, seconds: float, error: str | None, left: float) -> None:
        """Prints a line for a finished cell."""
        self.done += 1
        outcome = f"FAILED, {error}" if error else f"done in {format_seconds(seconds)}"
        width = len(str(self.total))
        self._line(
            f"[{self.done:>{width}}/{self.total}] {self._name(cell)}: {outcome}; about {format_seconds(left)} left"
        )
        if self.bar is not None:
            self.bar.update()

    def show_running(self, running: Sequence[tuple[Cell, float, Path]], left: float) -> None:
        """Updates the bar: the cells that are running, for how long, and in which epoch.

        Args:
            running: cells with their start and the path of their log.
            left: seconds until all cells are done.
        """
        if self.bar is None:
            return
        now = time.monotonic()
        parts = [f"{self._name(cell)}{_position(log)} {format_seconds(now - begun)}" for cell, begun, log in running]
        self.bar.set_postfix_str(f"about {format_seconds(left)} left | {' | '.join(parts)}")

    def close(self) -> None:
        """Removes the bar."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def _name(self, cell: Cell) -> str:
        return self.names.get(cell, cell.title)

    def _line(self, text: str) -> None:
        ProgressBar.write(text, file=self.stream)
        self.stream.flush()


def _position(log: Path) -> str:
    """ " (epoch 3/40)" or " (12/50 rounds)" from the end of a cell's log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            tail = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    epochs = re.findall(r"epoch\s+(\d+)/(\d+)", tail, re.IGNORECASE)
    if epochs:
        return f" (epoch {epochs[-1][0]}/{epochs[-1][1]})"
    counts = re.findall(r"(\d+) of (\d+) (epochs|rounds)", tail)
    return f" ({counts[-1][0]}/{counts[-1][1]} {counts[-1][2]})" if counts else ""


def default_jobs(data_bytes: int) -> int:
    """The number of cells at a time that cores and free memory allow, at least one.

    Args:
        data_bytes: size of the features, which every process holds.
    """
    return max(1, min(_num_cores(), _available_bytes() // (_BYTES_PER_JOB + _COPIES_OF_DATA * data_bytes)))


def threads_per_job(jobs: int) -> int | None:
    """The cores divided among jobs; None, no limit, for a single job.

    A single unlimited job gives exactly the figures of `python -m cmimh_tf.train`: the order of TensorFlow's additions
    depends on the number of threads, and with it the last digits.
    """
    return None if jobs == 1 else max(1, _num_cores() // jobs)


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _available_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return 1024 * int(fields["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):  # Not Linux: one job is safe.
        return _BYTES_PER_JOB
