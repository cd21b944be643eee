"""A process that measures cells, one after another."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

from cmimh_tf.experiments.cell import Cell
from cmimh_tf.experiments.store import CellStore

_THREAD_VARIABLES = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
_PARENT_CHECK_SECONDS = 2.0
_GOODBYE_SECONDS = 10.0


class Worker:
    """The parent's end of a measuring process.

    Args:
        data_name: what `--data` got.
        store: where results go.
        threads: how many threads each library of the process may start; None leaves that to them.
    """

    def __init__(self, data_name: str, store: CellStore, threads: int | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.process = context.Process(
            target=serve, args=(child_connection, data_name, store, threads, os.getpid()), daemon=True
        )
        with _thread_limit(threads):
            self.process.start()
        child_connection.close()

    def start(self, cell: Cell) -> None:
        """Begins a cell; the worker must have none."""
        self.connection.send(cell)

    def wait_handles(self) -> list[Any]:
        """What `multiprocessing.connection.wait` wakes up for when the worker has something to say."""
        return [self.connection, self.process.sentinel]

    def poll(self) -> tuple[bool, str | None]:
        """Whether the cell is over, and its error if it failed. A process that died has failed its cell."""
        try:
            if self.connection.poll():
                return True, self.connection.recv()
        except (EOFError, OSError):
            self.process.join(_GOODBYE_SECONDS)
        if self.process.is_alive():
            return False, None
        return True, f"the process ended by itself ({_ending(self.process.exitcode)})"

    def is_alive(self) -> bool:
        """Whether it can take another cell."""
        return self.process.is_alive()

    def close(self) -> None:
        """Ends the process, in the middle of a cell if it has one."""
        self.connection.close()
        self.process.terminate()
        self.process.join(_GOODBYE_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def serve(
    connection: multiprocessing.connection.Connection,
    data_name: str,
    store: CellStore,
    threads: int | None,
    parent: int,
) -> None:
    """The process: takes cells from `connection`, stores results, answers None or the error of each."""
    # Ctrl-C reaches the whole group: the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    while True:
        try:
            cell = connection.recv()
        except EOFError:
            return
        error = None
        with _output_to(store, cell):
            try:
                measure_and_store(cell, data_name, store, threads)
            except Exception as exception:
                traceback.print_exc()
                error = f"{type(exception).__name__}: {exception}"
        connection.send(error)


def measure_and_store(cell: Cell, data_name: str, store: CellStore, threads: int | None = None) -> None:
    """Measures a cell and writes its result.

    Args:
        cell: what to measure.
        data_name: what `--data` got.
        store: where the result goes.
        threads: what the process was limited to, for the record.
    """
    from cmimh_tf.command_line import load_data
    from cmimh_tf.experiments import methods
    from cmimh_tf.experiments.source import source_fingerprint

    record = {"threads": threads, "source": source_fingerprint()}
    started = time.monotonic()
    result = methods.measure(cell, load_data(data_name, cell.seed))
    store.save(cell, {**result, "total_seconds": time.monotonic() - started, **record})


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent: a killed experiment leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def _thread_limit(threads: int | None) -> Iterator[None]:
    """Sets the variables that libraries read when they are first imported, for a process started within."""
    if threads is None:
        yield
        return
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _output_to(store: CellStore, cell: Cell) -> Iterator[None]:
    """Sends what the process prints, C++ included, to the log of the cell."""
    path = store.log_path(cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(1), os.dup(2)
    with path.open("w", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in zip((1, 2), kept, strict=True):
                os.dup2(original, descriptor)
                os.close(original)


def _ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        reason = "; out of memory?" if exit_code == -9 else ""
        return f"signal {-exit_code}{reason}"
    return f"exit code {exit_code}"
