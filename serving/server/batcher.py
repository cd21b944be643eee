"""Requests that arrive together run together: one batch of rows, one run of the model, the results handed back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from serving.server.errors import ServingError, from_exception
from serving.server.servable import Runner

# A float tensor as an array, a string tensor [rows] as a list of bytes: lists join faster than arrays of objects.
Column = np.ndarray | list[bytes]
Outputs = Mapping[str, np.ndarray]


@dataclass(eq=False)
class Task:
    """One request in the queue.

    Attributes:
        inputs: by alias, all with `rows` rows.
        rows: their number.
        shapes: the shapes of one row; only tasks with equal ones can share a batch.
        future: set to the outputs of these rows, or to a ServingError.
    """

    inputs: Mapping[str, Column]
    rows: int
    shapes: tuple[object, ...]
    future: asyncio.Future[Outputs]


@dataclass(eq=False)
class _Queue:
    tasks: deque[Task] = field(default_factory=deque)
    rows: int = 0
    timer: asyncio.Handle | None = None


class Batcher:
    """Gathers rows by signature. All methods belong to the event loop; only the model runs in threads.

    A batch leaves when a thread is free and it is full, or its first row has waited for `timeout`. While all threads
    are busy rows gather anyway, so that under load a timeout of 0 makes large batches too.

    Args:
        max_batch_size: rows that are joined; a request with more runs alone.
        timeout: seconds.
        max_enqueued_rows: of all queues together.
        num_threads: batches that run at the same time.
        observe: told the number of rows of every batch.
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
        self._enqueued_rows = 0
        self._free_threads = num_threads
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="batch")
        self._loop = asyncio.get_running_loop()

    def submit(self, runner: Runner, inputs: Mapping[str, Column], rows: int) -> asyncio.Future[Outputs]:
        """Queues the rows of one request.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many rows wait already.
        """
        if self._enqueued_rows and self._enqueued_rows + rows > self._max_enqueued_rows:
            raise ServingError(
                "RESOURCE_EXHAUSTED",
                "The batch scheduling queue to which this task was submitted is full; "
                f"queue capacity is {self._max_enqueued_rows} rows",
            )
        shapes = tuple(None if isinstance(value, list) else value.shape[1:] for value in inputs.values())
        task = Task(inputs, rows, shapes, self._loop.create_future())
        queue = self._queues.get(runner)
        if queue is None:
            queue = self._queues[runner] = _Queue()
        queue.tasks.append(task)
        queue.rows += rows
        self._enqueued_rows += rows
        if self._free_threads:
            self._arrange(runner, queue)
        return task.future

    def close(self) -> None:
        """Waits for the running batches."""
        self._threads.shutdown()

    def _arrange(self, runner: Runner, queue: _Queue) -> None:
        """Makes sure that the queue's next batch will leave: at once if it is full, else after the timeout."""
        if queue.rows >= self._max_batch_size:
            self._leave(runner, queue)
        elif queue.timer is None:
            if self._timeout:
                queue.timer = self._loop.call_later(self._timeout, self._leave, runner, queue)
            else:
                # After the other requests that have arrived in this turn of the loop.
                queue.timer = self._loop.call_soon(self._leave, runner, queue)

    def _leave(self, runner: Runner, queue: _Queue) -> None:
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if not self._free_threads:
            return
        batch = self._next_batch(queue)
        if not queue.tasks:
            del self._queues[runner]
        if batch:
            self._free_threads -= 1
            self._observe(sum(task.rows for task in batch))
            self._threads.submit(self._run_batch, runner, batch)

    def _next_batch(self, queue: _Queue) -> list[Task]:
        batch: list[Task] = []
        rows = 0
        while queue.tasks:
            task = queue.tasks[0]
            if batch and (rows + task.rows > self._max_batch_size or task.shapes != batch[0].shapes):
                break
            queue.tasks.popleft()
            queue.rows -= task.rows
            self._enqueued_rows -= task.rows
            # Who has given up, by time-out or by hanging up, needs no answer.
            if not task.future.done():
                batch.append(task)
                rows += task.rows
        return batch

    def _run_batch(self, runner: Runner, batch: list[Task]) -> None:
        """In a thread: runs the model and sends the results back to the loop."""
        try:
            results = run_tasks(runner, batch)
        except BaseException as error:
            results = [from_exception(error)] * len(batch)
        self._loop.call_soon_threadsafe(self._finish, batch, results)

    def _finish(self, batch: list[Task], results: Sequence[Outputs | ServingError]) -> None:
        self._free_threads += 1
        for task, result in zip(batch, results, strict=True):
            if task.future.done():
                continue
            if isinstance(result, ServingError):
                task.future.set_exception(result)
            else:
                task.future.set_result(result)
        # The queue that was joined first is the first in the dictionary.
        for runner, queue in list(self._queues.items()):
            if not self._free_threads:
                break
            self._arrange(runner, queue)


def run_tasks(runner: Runner, batch: list[Task]) -> list[Outputs | ServingError]:
    """One run for all tasks. If it fails each runs alone, so that a wrong row hurts only the request that sent it."""
    try:
        outputs = runner.run(join_inputs(batch))
    except Exception as error:
        if len(batch) == 1:
            return [from_exception(error)]
        return [result for task in batch for result in run_tasks(runner, [task])]
    if len(batch) == 1:
        return [outputs]
    rows = sum(task.rows for task in batch)
    if any(value.ndim == 0 or len(value) != rows for value in outputs.values()):
        return [result for task in batch for result in run_tasks(runner, [task])]
    results: list[Outputs | ServingError] = []
    start = 0
    for task in batch:
        end = start + task.rows
        results.append({name: value[start:end] for name, value in outputs.items()})
        start = end
    return results


def join_inputs(batch: list[Task]) -> dict[str, np.ndarray]:
    """The inputs of all tasks below each other, as arrays."""
    joined = {}
    for name, first in batch[0].inputs.items():
        columns = [task.inputs[name] for task in batch]
        if isinstance(first, list):
            flat = first if len(columns) == 1 else [value for column in columns for value in column]
            joined[name] = np.empty(len(flat), object)
            joined[name][:] = flat
        else:
            joined[name] = first if len(columns) == 1 else np.concatenate(columns)
    return joined
