import asyncio
import threading

import numpy as np
import pytest

from serving.server.batcher import Batcher
from serving.server.errors import ServingError
from serving.server.servable import InputSpec, Runner


def doubling_runner(calls, gate=None):
    """Doubles its input; refuses negative numbers; waits for `gate` first."""

    def call(values):
        if gate is not None:
            assert gate.wait(30)
        calls.append(len(values))
        if (values < 0).any():
            raise ServingError("INVALID_ARGUMENT", "negative")
        return [2 * values]

    spec = InputSpec("x", np.dtype(np.float32), "float32", (None, 2))
    return Runner("double", {"x": spec}, ("y",), call)


def rows(*values):
    return {"x": np.array([[value, value] for value in values], np.float32)}


def run(test):
    asyncio.run(asyncio.wait_for(test(), 60))


def test_rows_that_wait_together_run_together_and_come_back_in_order():
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Batcher(4, 0.0, 100), doubling_runner(calls, gate)
        futures = [batcher.submit(runner, rows(0), 1)]
        await asyncio.sleep(0.05)
        futures += [batcher.submit(runner, rows(*range(n)), n) for n in (1, 2, 2, 1, 1)]
        gate.set()
        outputs = await asyncio.gather(*futures)
        batcher.close()
        assert [output["y"][:, 0].tolist() for output in outputs] == [[0], [0], [0, 2], [0, 2], [0], [0]]

    run(test)
    # The first alone, then as many as fit into four rows without splitting a request.
    assert calls == [1, 3, 4]


def test_the_timeout_lets_rows_gather():
    calls = []

    async def test():
        batcher, runner = Batcher(64, 0.1, 100), doubling_runner(calls)
        futures = []
        for number in range(5):
            futures.append(batcher.submit(runner, rows(number), 1))
            await asyncio.sleep(0.002)
        await asyncio.gather(*futures)
        batcher.close()

    run(test)
    assert calls == [5]


def test_a_full_batch_does_not_wait():
    calls = []

    async def test():
        batcher, runner = Batcher(2, 30.0, 100), doubling_runner(calls)
        await asyncio.gather(*(batcher.submit(runner, rows(number), 1) for number in range(2)))
        batcher.close()

    run(test)
    assert calls == [2]


def test_a_request_larger_than_a_batch_runs_alone():
    calls = []

    async def test():
        batcher, runner = Batcher(2, 0.0, 100), doubling_runner(calls)
        outputs = await batcher.submit(runner, rows(1, 2, 3, 4, 5), 5)
        assert outputs["y"].shape == (5, 2)
        batcher.close()

    run(test)
    assert calls == [5]


def test_a_full_queue_refuses_and_then_takes_rows_again():
    gate = threading.Event()

    async def test():
        batcher, runner = Batcher(2, 0.0, 3), doubling_runner([], gate)
        running = batcher.submit(runner, rows(1), 1)
        await asyncio.sleep(0.05)
        waiting = [batcher.submit(runner, rows(1), 1) for _ in range(3)]
        with pytest.raises(ServingError, match="queue capacity is 3 rows") as caught:
            batcher.submit(runner, rows(1), 1)
        assert caught.value.http_status == 429
        gate.set()
        await asyncio.gather(running, *waiting)
        await batcher.submit(runner, rows(1), 1)
        batcher.close()

    run(test)


def test_a_wrong_row_hurts_only_its_own_request():
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Batcher(8, 0.0, 100), doubling_runner(calls, gate)
        first = batcher.submit(runner, rows(0), 1)
        await asyncio.sleep(0.05)
        futures = [batcher.submit(runner, rows(value), 1) for value in (1, -1, 3)]
        gate.set()
        await first
        results = await asyncio.gather(*futures, return_exceptions=True)
        batcher.close()
        assert results[0]["y"][0, 0] == 2
        assert isinstance(results[1], ServingError)
        assert results[2]["y"][0, 0] == 6

    run(test)
    assert calls == [1, 3, 1, 1, 1]


def test_who_gave_up_is_not_computed():
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Batcher(8, 0.0, 100), doubling_runner(calls, gate)
        first = batcher.submit(runner, rows(0), 1)
        await asyncio.sleep(0.05)
        gone, stays = batcher.submit(runner, rows(1), 1), batcher.submit(runner, rows(2), 1)
        gone.cancel()
        gate.set()
        await first
        assert (await stays)["y"][0, 0] == 4
        batcher.close()

    run(test)
    assert calls == [1, 1]
