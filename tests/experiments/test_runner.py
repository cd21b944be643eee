"""Running cells: each once, several at a time, failures apart, and nothing twice after a kill."""

import pytest

from cmimh_tf.experiments import runner
from cmimh_tf.experiments.runner import default_jobs, run_cells, threads_per_job
from cmimh_tf.experiments.store import CellStore


class QuietScreen:
    def __init__(self):
        self.events = []

    def begin(self, total, done):
        self.events.append(("begin", total, done))

    def started(self, cell):
        self.events.append(("started", cell.method))

    def ended(self, cell, seconds, error, left):
        self.events.append(("ended", cell.method, error))

    def redraw(self, running, left):
        pass


class FakeWorker:
    """Measures at once, in this process."""

    alive = 0

    def __init__(self, store, result, failing=()):
        self.store, self.result, self.failing = store, result, failing
        self.is_running = True
        self.cells = []
        FakeWorker.alive += 1

    def start(self, cell):
        self.cells.append(cell)

    def wait_handles(self):
        return []

    def poll(self):
        cell = self.cells[-1]
        if cell.method in self.failing:
            return True, "ValueError: no"
        self.store.save(cell, self.result)
        return True, None

    def is_alive(self):
        return self.is_running

    def close(self):
        self.is_running = False
        FakeWorker.alive -= 1


@pytest.fixture
def store(tmp_path):
    FakeWorker.alive = 0
    return CellStore(tmp_path, "data")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(runner, "_REDRAW_SECONDS", 0.0)


def run(cells, store, result, jobs=2, failing=()):
    screen, workers = QuietScreen(), []

    def make_worker():
        workers.append(FakeWorker(store, result, failing))
        return workers[-1]

    failures = run_cells(cells, store, make_worker, jobs, screen)
    assert FakeWorker.alive == 0
    return failures, screen.events, workers


def test_every_cell_is_measured_once(store, make_cell, make_result):
    cells = [make_cell(seed=seed) for seed in range(5)]
    failures, events, workers = run([*cells, cells[0]], store, make_result(0.5))
    assert failures == {}
    assert events[0] == ("begin", 5, 0)
    assert sorted(cell.seed for worker in workers for cell in worker.cells) == [0, 1, 2, 3, 4]
    assert len(workers) == 2
    assert all(store.load(cell) for cell in cells)


def test_run_again_measures_only_what_is_missing(store, make_cell, make_result):
    cells = [make_cell(seed=seed) for seed in range(3)]
    run(cells[:2], store, make_result(0.5))
    _, events, workers = run(cells, store, make_result(0.5))
    assert events[0] == ("begin", 3, 2)
    assert [cell for worker in workers for cell in worker.cells] == cells[2:]
    _, events, workers = run(cells, store, make_result(0.5))
    assert workers == []


def test_one_failure_is_recorded_and_does_not_stop_the_rest(store, make_cell, make_result):
    cells = [make_cell(method) for method in ("CVH", "ACQ", "FSH")]
    failures, events, _ = run(cells, store, make_result(0.5), failing=("ACQ",))
    assert failures == {cells[1]: "ValueError: no"}
    assert ("ended", "ACQ", "ValueError: no") in events
    assert store.load(cells[0])
    assert store.load(cells[2])
    assert store.failure_path(cells[1]).exists()
    failures, _, workers = run(cells, store, make_result(0.5))
    assert failures == {}
    assert [cell for worker in workers for cell in worker.cells] == [cells[1]]


def test_the_longest_come_first(store, make_cell, make_result):
    cells = [make_cell("CVH"), make_cell("DJSRH"), make_cell("CMIMH", **{"training.epochs": 40})]
    _, events, _ = run(cells, store, make_result(0.5), jobs=1)
    assert [event[1] for event in events if event[0] == "started"] == ["CMIMH", "DJSRH", "CVH"]


def test_workers_end_when_the_run_is_interrupted(store, make_cell, make_result, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(FakeWorker, "poll", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run([make_cell()], store, make_result(0.5))
    assert FakeWorker.alive == 0


@pytest.mark.parametrize(("gigabytes", "cores", "jobs"), [(100, 4, 4), (5, 4, 2), (0.1, 4, 1), (100, 1, 1)])
def test_jobs_by_cores_and_memory(monkeypatch, gigabytes, cores, jobs):
    monkeypatch.setattr(runner, "_available_bytes", lambda: int(gigabytes * 2**30))
    monkeypatch.setattr(runner.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert default_jobs(0) == jobs


def test_threads_share_the_cores_and_one_job_is_not_limited(monkeypatch):
    monkeypatch.setattr(runner.os, "sched_getaffinity", lambda _: set(range(4)))
    assert [threads_per_job(jobs) for jobs in (1, 2, 4, 8)] == [None, 2, 1, 1]
