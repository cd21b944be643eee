"""Joins the rows of concurrent requests to batches: one run of the model for all of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from serving.errors import ServingError, from_exception
from serving.server.servable import Column, Runner

_MAX_BALANCE_SECONDS = 0.005


@dataclass(eq=False, slots=True)
class BatchOutputs:
    """The outputs of a whole batch.

    Attributes:
        columns: by name, all with the same number of rows.
        json_rows: the rows as JSON, once one of them was encoded: one pass over a batch is faster than one per request.
    """

    columns: Mapping[str, Column]
    json_rows: list[bytes] | None = None


@dataclass(eq=False, slots=True)
class Outputs:
    """The outputs of one request: rows `start` to `stop` of its batch."""

    batch: BatchOutputs
    start: int
    stop: int

    def columns(self) -> dict[str, Column]:
        """The columns of this request by name."""
        return {name: column[self.start : self.stop] for name, column in self.batch.columns.items()}


@dataclass(eq=False, slots=True)
class Task:
    """The rows of one request, and the future of their outputs.

    Attributes:
        inputs: columns by alias.
        rows: the number of rows of each column.
        shapes: the shapes of one row; only tasks with equal shapes share a batch.
        outputs: cancelled if the client gave up.
    """

    inputs: Mapping[str, Column]
    rows: int
    shapes: tuple[object, ...]
    outputs: asyncio.Future[Outputs]


@dataclass(eq=False)
class _Queue:
    tasks: deque[Task] = field(default_factory=deque)
    rows: int = 0
    timer: asyncio.Handle | None = None
    is_leaving: bool = False


class Batcher:
    """Collects rows by signature. All methods run in the event loop; only the model runs in threads.

    A batch starts when a thread is free and either the batch is full or its first row has waited for `timeout`. While
    all threads are busy rows collect anyway, so a timeout of 0 makes large batches under load, too. It would make them
    uneven: clients that were answered together return one after the other, and the first would find a free thread and
    run alone. So a batch with less than half of the rows that were recently under way waits for more, for at most a
    millisecond. A single client never waits.

    Args:
        max_batch_size: maximum number of rows that are joined; a request with more rows runs alone.
        timeout: seconds.
        max_enqueued_rows: maximum number of waiting rows, all signatures together.
        num_threads: number of batches that run at the same time.
        observe: called with the number of rows of every batch.
    """

    def __init__(
        self,
        max_batch_size: int,
        timeout: float,
        max_enqueued_rows: int,
        num_threads: int = 1,
        observe: Callable[[int], None] = lambda rows: None,
    ):
        self._max_batch_size = max_batch_size
        self._timeout = timeout
        self._max_enqueued_rows = max_enqueued_rows
        self._observe = observe
        self._queues: dict[Runner, _Queue] = {}
        self._enqueued_rows = self._running_rows = self._peak_rows = self._recent_rows = 0
        self._free_threads = num_threads
        self._balance_seconds = 0.0
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="batch")
        self._loop = asyncio.get_running_loop()

    async def run(self, runner: Runner, inputs: Mapping[str, Column], rows: int, limit: float) -> Outputs:
        """Runs a signature on the rows of one request.

        Args:
            runner: the signature.
            inputs: columns by alias.
            rows: the number of rows.
            limit: seconds.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many rows are waiting, DEADLINE_EXCEEDED after `limit` seconds, or
                the error of the model.
        """
        if self._enqueued_rows and self._enqueued_rows + rows > self._max_enqueued_rows:
            raise ServingError(
                "RESOURCE_EXHAUSTED",
                "The batch scheduling queue to which this task was submitted is full; "
                f"queue capacity is {self._max_enqueued_rows} rows",
            )
        shapes = tuple([None if isinstance(value, list) else value.shape[1:] for value in inputs.values()])
        task = Task(inputs, rows, shapes, self._loop.create_future())
        queue = self._queues.get(runner)
        if queue is None:
            queue = self._queues[runner] = _Queue()
        queue.tasks.append(task)
        queue.rows += rows
        self._enqueued_rows += rows
        self._peak_rows = max(self._peak_rows, self._enqueued_rows + self._running_rows)
        if self._free_threads:
            self._schedule(runner, queue)
        timer = self._loop.call_later(limit, _expire, task.outputs, limit)
        try:
            return await task.outputs
        finally:
            timer.cancel()

    def close(self) -> None:
        """Waits for the running batches."""
        self._threads.shutdown()

    def _schedule(self, runner: Runner, queue: _Queue) -> None:
        """Starts the next batch of the queue: at once if it is large enough, otherwise after some time."""
        if queue.rows >= self._max_batch_size:
            self._start(runner, queue)
        elif self._timeout:
            if queue.timer is None:
                queue.timer = self._loop.call_later(self._timeout, self._start, runner, queue)
        elif 2 * queue.rows >= self._recent_rows:
            if not queue.is_leaving:
                queue.is_leaving = True
                # After the other requests that arrived in this turn of the loop.
                self._loop.call_soon(self._start, runner, queue)
        elif queue.timer is None:
            queue.timer = self._loop.call_later(self._balance_seconds, self._start, runner, queue)

    def _start(self, runner: Runner, queue: _Queue) -> None:
        queue.is_leaving = False
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if not self._free_threads:
            return
        batch = self._take_batch(queue)
        # A late call may be for a queue that was emptied, while the runner has a new one.
        if not queue.tasks and self._queues.get(runner) is queue:
            del self._queues[runner]
        if batch:
            rows = sum([task.rows for task in batch])
            self._running_rows += rows
            self._recent_rows, self._peak_rows = self._peak_rows, self._enqueued_rows + self._running_rows
            self._free_threads -= 1
            self._observe(rows)
            self._threads.submit(self._run_batch, runner, batch)

    def _take_batch(self, queue: _Queue) -> list[Task]:
        batch: list[Task] = []
        rows = 0
        while queue.tasks:
            task = queue.tasks[0]
            if batch and (rows + task.rows > self._max_batch_size or task.shapes != batch[0].shapes):
                break
            queue.tasks.popleft()
            queue.rows -= task.rows
            self._enqueued_rows -= task.rows
            # Requests that timed out, or whose client hung up, are not computed.
            if not task.outputs.done():
                batch.append(task)
                rows += task.rows
        return batch

    def _run_batch(self, runner: Runner, batch: list[Task]) -> None:
        """In a thread: runs the model and passes the results to the loop."""
        started = time.perf_counter()
        try:
            results = run_tasks(runner, batch)
        except BaseException as error:
            results = [from_exception(error)] * len(batch)
        self._balance_seconds = min(_MAX_BALANCE_SECONDS, (time.perf_counter() - started) / 2)
        self._loop.call_soon_threadsafe(self._finish, batch, results)

    def _finish(self, batch: list[Task], results: Sequence[Outputs | ServingError]) -> None:
        self._free_threads += 1
        self._running_rows -= sum([task.rows for task in batch])
        # First the threads get new work, then the answers are sent. The oldest queue comes first.
        for runner, queue in list(self._queues.items()):
            if not self._free_threads:
                break
            self._schedule(runner, queue)
        for task, result in zip(batch, results, strict=True):
            if task.outputs.done():
                continue
            if isinstance(result, ServingError):
                task.outputs.set_exception(result)
            else:
                task.outputs.set_result(result)


def _expire(outputs: asyncio.Future[Outputs], limit: float) -> None:
    if not outputs.done():
        error = ServingError("DEADLINE_EXCEEDED", f"The request took longer than {limit:g} seconds.")
        outputs.set_exception(error)


def run_tasks(runner: Runner, batch: list[Task]) -> list[Outputs | ServingError]:
    """Runs all tasks at once. If that fails each runs alone, so that a wrong row only fails its own request."""
    try:
        outputs = runner.run(_join([task.inputs for task in batch]))
    except Exception as error:
        if len(batch) == 1:
            return [_name_row(runner, batch[0].inputs, batch[0].rows, from_exception(error))]
        return [result for task in batch for result in run_tasks(runner, [task])]
    rows = sum([task.rows for task in batch])
    if any(value.ndim == 0 or len(value) != rows for value in outputs.values()):
        if len(batch) > 1:
            return [result for task in batch for result in run_tasks(runner, [task])]
        return [ServingError("INTERNAL", "The model must return one output row per input row.")]
    joined = BatchOutputs({name: _as_column(value) for name, value in outputs.items()})
    results: list[Outputs | ServingError] = []
    start = 0
    for task in batch:
        results.append(Outputs(joined, start, start + task.rows))
        start += task.rows
    return results


def _name_row(runner: Runner, inputs: Mapping[str, Column], rows: int, error: ServingError) -> ServingError:
    """The error with the first wrong row, which is found by bisection, and the name of the input."""
    if error.code != "INVALID_ARGUMENT" or " in row " in error.message:
        return error
    first, last = 0, rows
    while last - first > 1:
        middle = (first + last) // 2
        try:
            runner.run(_join([{name: column[first:middle] for name, column in inputs.items()}]))
            first = middle
        except Exception as half_error:
            last, error = middle, from_exception(half_error)
    names = [f"`{name}`" for name in inputs]
    of_inputs = "" if any(name in error.message for name in names) else f" of {', '.join(names)}"
    return ServingError(error.code, f"Row {first}{of_inputs}: {error.message}")


def _as_column(value: np.ndarray) -> Column:
    return value.tolist() if value.dtype == object and value.ndim == 1 else value


def _join(inputs: list[Mapping[str, Column]]) -> dict[str, np.ndarray]:
    """The columns of all requests below each other, as arrays."""
    joined = {}
    for name, first in inputs[0].items():
        columns = [request[name] for request in inputs]
        if isinstance(first, list):
            flat = first if len(columns) == 1 else [value for column in columns for value in column]
            joined[name] = np.empty(len(flat), object)
            joined[name][:] = flat
        else:
            joined[name] = first if len(columns) == 1 else np.concatenate(columns)
    return joined
