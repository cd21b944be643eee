"""A process that measures cells, one after another."""

import contextlib
import functools
import hashlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cmimh_tf
from cmimh_tf.experiments.experiment import Cell
from cmimh_tf.experiments.results import CellStore

_THREAD_VARIABLES = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
_PARENT_CHECK_SECONDS = 2.0
_EXIT_SECONDS = 10.0
# The files of experiments/ that decide results. The others, and reports/, only list cells and present results.
_MEASURING_FILES = ("measure.py", "probes.py")


class Worker:
    """The parent's handle of a measuring process.

    Args:
        data_name: the value of `--data`.
        store: where results go.
        threads: the number of threads that each library in the process may start; None sets no limit.
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
        """Starts a cell; the worker must be idle."""
        self.connection.send(cell)

    def wait_handles(self) -> list[Any]:
        """Handles for `multiprocessing.connection.wait`, ready when the cell is over or the process has ended."""
        return [self.connection, self.process.sentinel]

    def poll(self) -> tuple[bool, str | None]:
        """Whether the cell is over, and its error if it failed. If the process dies, its cell has failed."""
        try:
            if self.connection.poll():
                return True, self.connection.recv()
        except (EOFError, OSError):
            self.process.join(_EXIT_SECONDS)
        if self.process.is_alive():
            return False, None
        return True, f"the process ended by itself ({_describe_exit(self.process.exitcode)})"

    def is_alive(self) -> bool:
        """Whether the process can measure another cell."""
        return self.process.is_alive()

    def close(self) -> None:
        """Ends the process, even in the middle of a cell."""
        self.connection.close()
        self.process.terminate()
        self.process.join(_EXIT_SECONDS)
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
    """The body of the process: receives cells, stores their results, and sends back None or an error for each."""
    # Ctrl-C reaches the whole process group; the parent decides what to do.
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
        cell: the cell.
        data_name: the value of `--data`.
        store: where the result goes.
        threads: the limit of the process, for the record.
    """
    from cmimh_tf.command_line import load_data
    from cmimh_tf.experiments.measure import measure

    record = {"threads": threads, "source": source_fingerprint()}
    started = time.monotonic()
    result = measure(cell, load_data(data_name, cell.seed))
    store.save(cell, {**result, "total_seconds": time.monotonic() - started, **record})


@functools.cache
def source_fingerprint(root: Path = Path(cmimh_tf.__file__).parent) -> str:
    """A hash of the files that can change a result, so that a report can tell results of different code apart.

    It is computed once per process, since later edits do not change the code that runs.

    Args:
        root: folder of the package.
    """
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in ("experiments", "reports") or path.name in _MEASURING_FILES:
            digest.update(str(relative).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, so that a killed experiment leaves nothing running."""
    while os.getppid() == parent:
        time.sleep(_PARENT_CHECK_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def _thread_limit(threads: int | None) -> Iterator[None]:
    """Limits the threads of a process that is started inside the block: libraries read these variables on import."""
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
    """Redirects all output of the process, that of C++ code included, to the log of the cell."""
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


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        reason = "; out of memory?" if exit_code == -9 else ""
        return f"signal {-exit_code}{reason}"
    return f"exit code {exit_code}"
