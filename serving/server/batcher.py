"""Requests that arrive together run together: one batch of rows, one run of the model, the results handed back."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from serving.server.errors import ServingError, from_exception
from serving.server.servable import Column, Runner

Outputs = Mapping[str, Column]
Deliver = Callable[[Outputs | ServingError], None]

_LOOK_SECONDS = 0.05
_BALANCE_SECONDS = 0.001


@dataclass(eq=False, slots=True)
class Task:
    """One request, from its arrival to its result.

    Attributes:
        inputs: by alias, all with `rows` rows.
        rows: their number.
        shapes: the shapes of one row; only tasks with equal ones can share a batch.
        deliver: called once, in the event loop, with the outputs of these rows or a ServingError.
        limit: seconds that it may take.
        deadline: when they are over, by `time.monotonic`.
        is_open: whether a result is still wanted.
    """

    inputs: Mapping[str, Column]
    rows: int
    shapes: tuple[object, ...]
    deliver: Deliver
    limit: float
    deadline: float
    is_open: bool = True

    def cancel(self) -> None:
        """Gives up; rows that have not left yet are not computed. Nothing is delivered."""
        self.is_open = False

    def finish(self, result: Outputs | ServingError) -> None:
        """Delivers the result, unless one was delivered or nobody waits for it."""
        if self.is_open:
            self.is_open = False
            self.deliver(result)


@dataclass(eq=False)
class _Queue:
    tasks: deque[Task] = field(default_factory=deque)
    rows: int = 0
    timer: asyncio.Handle | None = None
    is_leaving: bool = False


class Batcher:
    """Gathers rows by signature. All methods belong to the event loop; only the model runs in threads.

    A batch leaves when a thread is free and it is full, or its first row has waited for `timeout`. While all threads
    are busy rows gather anyway, so that under load a timeout of 0 makes large batches too. It would make them
    uneven: clients whose answers went out together come back one after the other, and the first of them would find
    a free thread and run alone. So a batch with less than half of the rows that were lately on their way waits for
    more, for a millisecond at most; a lone client never waits.

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
        self._running: set[Task] = set()
        self._enqueued_rows = self._running_rows = self._peak_rows = self._lately_rows = 0
        self._free_threads = num_threads
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="batch")
        self._loop = asyncio.get_running_loop()
        self._look_timer: asyncio.Handle | None = None

    def submit(self, runner: Runner, inputs: Mapping[str, Column], rows: int, limit: float, deliver: Deliver) -> Task:
        """Queues the rows of one request.

        Args:
            runner: the signature.
            inputs: by alias.
            rows: their number.
            limit: seconds until DEADLINE_EXCEEDED is delivered instead.
            deliver: takes the result.

        Raises:
            ServingError: RESOURCE_EXHAUSTED if too many rows wait already.
        """
        if self._enqueued_rows and self._enqueued_rows + rows > self._max_enqueued_rows:
            raise ServingError(
                "RESOURCE_EXHAUSTED",
                "The batch scheduling queue to which this task was submitted is full; "
                f"queue capacity is {self._max_enqueued_rows} rows",
            )
        shapes = tuple([None if isinstance(value, list) else value.shape[1:] for value in inputs.values()])
        task = Task(inputs, rows, shapes, deliver, limit, time.monotonic() + limit)
        queue = self._queues.get(runner)
        if queue is None:
            queue = self._queues[runner] = _Queue()
        queue.tasks.append(task)
        queue.rows += rows
        self._enqueued_rows += rows
        self._peak_rows = max(self._peak_rows, self._enqueued_rows + self._running_rows)
        if self._look_timer is None:
            self._look_timer = self._loop.call_later(_LOOK_SECONDS, self._look_for_late_tasks)
        if self._free_threads:
            self._arrange(runner, queue)
        return task

    def close(self) -> None:
        """Waits for the running batches."""
        self._threads.shutdown()

    def _arrange(self, runner: Runner, queue: _Queue) -> None:
        """Makes sure that the queue's next batch will leave: at once if it is large enough, else after a time."""
        if queue.rows >= self._max_batch_size:
            self._leave(runner, queue)
        elif self._timeout:
            if queue.timer is None:
                queue.timer = self._loop.call_later(self._timeout, self._leave, runner, queue)
        elif 2 * queue.rows >= self._lately_rows:
            if not queue.is_leaving:
                queue.is_leaving = True
                # After the other requests that have arrived in this turn of the loop.
                self._loop.call_soon(self._leave, runner, queue)
        elif queue.timer is None:
            queue.timer = self._loop.call_later(_BALANCE_SECONDS, self._leave, runner, queue)

    def _leave(self, runner: Runner, queue: _Queue) -> None:
        queue.is_leaving = False
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if not self._free_threads:
            return
        batch = self._next_batch(queue)
        # This call may be a late one for a queue that has left, and the runner may have a new queue since.
        if not queue.tasks and self._queues.get(runner) is queue:
            del self._queues[runner]
        if batch:
            rows = sum([task.rows for task in batch])
            self._running.update(batch)
            self._running_rows += rows
            self._lately_rows, self._peak_rows = self._peak_rows, self._enqueued_rows + self._running_rows
            self._free_threads -= 1
            self._observe(rows)
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
            if task.is_open:
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
        self._running.difference_update(batch)
        self._running_rows -= sum([task.rows for task in batch])
        # First the threads get work again, then the answers go out. The queue that was joined first is the first in
        # the dictionary.
        for runner, queue in list(self._queues.items()):
            if not self._free_threads:
                break
            self._arrange(runner, queue)
        for task, result in zip(batch, results, strict=True):
            task.finish(result)

    def _look_for_late_tasks(self) -> None:
        now = time.monotonic()
        tasks = [*self._running, *(task for queue in self._queues.values() for task in queue.tasks)]
        for task in tasks:
            if task.deadline <= now:
                task.finish(ServingError("DEADLINE_EXCEEDED", f"The request took longer than {task.limit:g} seconds."))
        self._look_timer = self._loop.call_later(_LOOK_SECONDS, self._look_for_late_tasks) if tasks else None


def run_tasks(runner: Runner, batch: list[Task]) -> list[Outputs | ServingError]:
    """One run for all tasks. If it fails each runs alone, so that a wrong row hurts only the request that sent it."""
    try:
        outputs = runner.run(join_inputs(batch))
    except Exception as error:
        if len(batch) == 1:
            return [from_exception(error)]
        return [result for task in batch for result in run_tasks(runner, [task])]
    rows = sum([task.rows for task in batch])
    if any(value.ndim == 0 or len(value) != rows for value in outputs.values()):
        if len(batch) == 1:
            return [outputs]
        return [result for task in batch for result in run_tasks(runner, [task])]
    columns = {name: _as_column(value) for name, value in outputs.items()}
    if len(batch) == 1:
        return [columns]
    results: list[Outputs | ServingError] = []
    start = 0
    for task in batch:
        end = start + task.rows
        results.append({name: column[start:end] for name, column in columns.items()})
        start = end
    return results


def _as_column(value: np.ndarray) -> Column:
    return value.tolist() if value.dtype == object and value.ndim == 1 else value


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
