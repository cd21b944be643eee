"""Runs a service of this process in a thread of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

Started = TypeVar("Started")
_SECONDS = 120


@contextlib.contextmanager
def in_thread(service: Callable[[], contextlib.AbstractAsyncContextManager[Started]]) -> Iterator[Started]:
    """Enters `service()` in an event loop of a new thread, yields what it yields, and leaves it at the end.

    An error at the start is raised here; one at the end fails the test.
    """
    results: list[Started | BaseException] = []
    ready, loops, stops = threading.Event(), [], []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())
        stops.append(asyncio.Event())
        async with service() as started:
            results.append(started)
            ready.set()
            await stops[0].wait()

    def target() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            results.append(error)
            ready.set()

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    assert ready.wait(_SECONDS)
    if isinstance(results[0], BaseException):
        raise results[0]
    try:
        yield results[0]
    finally:
        loops[0].call_soon_threadsafe(stops[0].set)
        thread.join(_SECONDS)
        assert not thread.is_alive()
        assert len(results) == 1, results
