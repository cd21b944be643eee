import asyncio
import threading

import numpy as np
import pytest

from serving.errors import ServingError
from serving.server.batcher import Batcher
from serving.server.servable import InputSpec, Runner


def doubling_runner(calls, gate=None):
    """Doubles its input; refuses negative numbers; waits for `gate` first."""

    def call(values):
        if gate is not None:
            assert gate.wait(120)
        calls.append(len(values))
        if (values < 0).any():
            raise ServingError("INVALID_ARGUMENT", "negative")
        return [2 * values]

    spec = InputSpec("x", np.dtype(np.float32), "float32", (None, 2))
    return Runner("double", {"x": spec}, ("y",), call)


def rows(*values):
    return {"x": np.array([[value, value] for value in values], np.float32)}


class Asking(Batcher):
    """The batcher with tasks, so that a test can go on while rows wait."""

    def ask(self, runner, inputs, count, limit=60.0):
        return asyncio.ensure_future(self.columns(runner, inputs, count, limit))

    async def columns(self, runner, inputs, count, limit):
        return (await self.run(runner, inputs, count, limit)).columns()


def run(test):
    asyncio.run(asyncio.wait_for(test(), 120))


def test_rows_that_wait_together_run_together_and_come_back_in_order():
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Asking(4, 0.0, 100), doubling_runner(calls, gate)
        futures = [batcher.ask(runner, rows(0), 1)]
        await asyncio.sleep(0.05)
        futures += [batcher.ask(runner, rows(*range(n)), n) for n in (1, 2, 2, 1, 1)]
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
        batcher, runner = Asking(64, 2.0, 100), doubling_runner(calls)
        futures = []
        for number in range(5):
            futures.append(batcher.ask(runner, rows(number), 1))
            await asyncio.sleep(0)
        await asyncio.gather(*futures)
        batcher.close()

    run(test)
    assert calls == [5]


def test_a_full_batch_does_not_wait():
    calls = []

    async def test():
        batcher, runner = Asking(2, 30.0, 100), doubling_runner(calls)
        await asyncio.gather(*(batcher.ask(runner, rows(number), 1) for number in range(2)))
        batcher.close()

    run(test)
    assert calls == [2]


def test_a_request_larger_than_a_batch_runs_alone():
    calls = []

    async def test():
        batcher, runner = Asking(2, 0.0, 100), doubling_runner(calls)
        outputs = await batcher.ask(runner, rows(1, 2, 3, 4, 5), 5)
        assert outputs["y"].shape == (5, 2)
        batcher.close()

    run(test)
    assert calls == [5]


def test_a_full_queue_refuses_and_then_takes_rows_again():
    gate = threading.Event()

    async def test():
        batcher, runner = Asking(2, 0.0, 3), doubling_runner([], gate)
        running = batcher.ask(runner, rows(1), 1)
        await asyncio.sleep(0.05)
        waiting = [batcher.ask(runner, rows(1), 1) for _ in range(3)]
        with pytest.raises(ServingError, match="queue capacity is 3 rows") as caught:
            await batcher.ask(runner, rows(1), 1)
        assert caught.value.http_status == 429
        gate.set()
        await asyncio.gather(running, *waiting)
        await batcher.ask(runner, rows(1), 1)
        batcher.close()

    run(test)


def test_a_wrong_row_hurts_only_its_own_request():
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Asking(8, 0.0, 100), doubling_runner(calls, gate)
        first = batcher.ask(runner, rows(0), 1)
        await asyncio.sleep(0.05)
        futures = [batcher.ask(runner, rows(value), 1) for value in (1, -1, 3)]
        gate.set()
        await first
        results = await asyncio.gather(*futures, return_exceptions=True)
        batcher.close()
        assert results[0]["y"][0, 0] == 2
        assert isinstance(results[1], ServingError)
        assert results[2]["y"][0, 0] == 6

    run(test)
    assert calls == [1, 3, 1, 1, 1]


def test_cancelled_requests_are_not_computed():
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Asking(8, 0.0, 100), doubling_runner(calls, gate)
        first = batcher.ask(runner, rows(0), 1)
        await asyncio.sleep(0.05)
        gone, stays = batcher.ask(runner, rows(1), 1), batcher.ask(runner, rows(2), 1)
        await asyncio.sleep(0)
        gone.cancel()
        gate.set()
        await first
        assert (await stays)["y"][0, 0] == 4
        batcher.close()

    run(test)
    assert calls == [1, 1]


def test_what_takes_too_long_fails_while_it_waits_and_while_it_runs():
    gate = threading.Event()

    async def test():
        batcher, runner = Asking(1, 0.0, 100), doubling_runner([], gate)
        futures = [batcher.ask(runner, rows(number), 1, limit) for number, limit in enumerate((0.05, 0.06, 60.0))]
        for future, limit in zip(futures[:2], ("0.05", "0.06"), strict=True):
            with pytest.raises(ServingError, match=f"longer than {limit} seconds") as caught:
                await future
            assert caught.value.http_status == 504
        gate.set()
        assert (await futures[2])["y"][0, 0] == 4
        batcher.close()

    run(test)


def test_clients_that_come_back_one_by_one_are_not_torn_apart(monkeypatch):
    """Four of them were answered together; the first that is back waits for another, and then does not wait on."""
    # Half the time of a batch, which takes 2 s here, so that a busy machine does not matter.
    monkeypatch.setattr("serving.server.batcher._MAX_BALANCE_SECONDS", 10.0)
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Asking(64, 0.0, 100), doubling_runner(calls, gate)
        first = [batcher.ask(runner, rows(number), 1) for number in range(4)]
        await asyncio.sleep(2.0)
        gate.set()
        await asyncio.gather(*first)
        again = [batcher.ask(runner, rows(0), 1)]
        await asyncio.sleep(0)
        again.append(batcher.ask(runner, rows(1), 1))
        await asyncio.gather(*again)
        # The others do not come back, and who is alone now waits once for them, but not for ever.
        await batcher.ask(runner, rows(0), 1)
        batcher.close()

    run(test)
    assert calls == [4, 2, 1]


def test_a_queue_that_left_full_does_not_take_the_next_one_with_it():
    """The first row asked its queue to leave after this turn; full, it left at once, and the third row has another."""
    calls, gate = [], threading.Event()

    async def test():
        batcher, runner = Asking(64, 0.0, 1000, num_threads=2), doubling_runner(calls, gate)
        futures = [batcher.ask(runner, rows(*range(n)), n) for n in (1, 63, 1)]
        await asyncio.sleep(0)
        futures.append(batcher.ask(runner, rows(*range(64)), 64))
        # Both threads are busy when the third row's own turn comes.
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*futures)
        batcher.close()

    run(test)
    assert sum(calls) == 129


@pytest.mark.parametrize("row", [0, 1, 2, 5, 6])
def test_an_error_names_the_first_wrong_row_and_the_input(row):
    values = [1] * row + [-1] + [1, -1][: 6 - row]

    async def test():
        batcher, runner = Asking(64, 0.0, 100), doubling_runner([])
        with pytest.raises(ServingError) as caught:
            await batcher.ask(runner, rows(*values), len(values))
        assert (caught.value.code, caught.value.message) == ("INVALID_ARGUMENT", f"Row {row} of `x`: negative")
        batcher.close()

    run(test)


@pytest.mark.parametrize(
    ("code", "message", "expected"),
    [
        ("INVALID_ARGUMENT", "`x` must be positive.", "Row 0: `x` must be positive."),
        ("INVALID_ARGUMENT", "NaN in row 7.", "NaN in row 7."),
        ("INTERNAL", "out of order", "out of order"),
    ],
)
def test_an_error_is_only_completed_where_row_or_input_are_missing(code, message, expected):
    def call(values):
        raise ServingError(code, message)

    async def test():
        batcher = Asking(64, 0.0, 100)
        runner = Runner("fail", {"x": InputSpec("x", np.dtype(np.float32), "float32", (None, 2))}, ("y",), call)
        with pytest.raises(ServingError) as caught:
            await batcher.ask(runner, rows(1, 2), 2)
        assert caught.value.message == expected
        batcher.close()

    run(test)
