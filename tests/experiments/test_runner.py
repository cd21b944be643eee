"""Running cells: each once, several at a time, failures apart, nothing twice after a kill, and the progress shown."""

import dataclasses
import io
from types import SimpleNamespace

import pytest

from cmimh_tf.experiments import runner
from cmimh_tf.experiments.experiment import SplitSetting
from cmimh_tf.experiments.results import CellStore
from cmimh_tf.experiments.runner import CellProgress, ExpectedTime, default_jobs, run_cells, threads_per_job


class QuietProgress:
    def __init__(self):
        self.events = []

    def begin(self, total, done):
        self.events.append(("begin", total, done))

    def started(self, cell):
        self.events.append(("started", cell.method))

    def ended(self, cell, seconds, error, left):
        self.events.append(("ended", cell.method, error))

    def show_running(self, running, left):
        pass

    def close(self):
        self.events.append(("close",))


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
    progress, workers = QuietProgress(), []

    def make_worker():
        workers.append(FakeWorker(store, result, failing))
        return workers[-1]

    failures = run_cells(cells, store, make_worker, jobs, progress)
    assert FakeWorker.alive == 0
    return failures, progress.events, workers


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


def test_mean_of_the_method_by_training_pairs(make_cell):
    expected = ExpectedTime()
    expected.learn(make_cell(seed=0), 10.0)
    expected.learn(make_cell(seed=1), 20.0)
    assert expected.seconds(make_cell(seed=2)) == pytest.approx(15.0)
    twice = dataclasses.replace(make_cell(), split=SplitSetting(20, 100))
    assert expected.seconds(twice) == pytest.approx(30.0)


def test_time_left_is_shared_among_jobs_but_no_less_than_the_longest_running(make_cell, monkeypatch):
    monkeypatch.setattr("cmimh_tf.experiments.runner.time", SimpleNamespace(monotonic=lambda: 100.0))
    expected = ExpectedTime()
    expected.learn(make_cell("CVH"), 10.0)
    expected.learn(make_cell("ACQ"), 100.0)
    assert expected.left([make_cell("CVH")] * 4, [], 2) == pytest.approx(20.0)
    assert expected.left([], [(make_cell("ACQ"), 70.0)], 2) == pytest.approx(70.0)
    assert expected.left([], [(make_cell("CVH"), 0.0)], 1) == 0.0


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_without_a_terminal(make_cell, tmp_path):
    stream = io.StringIO()
    progress = CellProgress(stream=stream)
    progress.begin(12, 3)
    progress.started(make_cell())
    progress.show_running([(make_cell(), 0.0, tmp_path / "no.log")], 60.0)
    progress.ended(make_cell(), 5.0, None, 130.0)
    progress.ended(make_cell("ACQ"), 5.0, "ValueError: no", 0.0)
    assert stream.getvalue().splitlines() == [
        "12 cells, 3 of them measured before",
        "started: CVH, 16 bits, seed 0",
        "[ 4/12] CVH, 16 bits, seed 0: done in 5 s; about 2 min 10 s left",
        "[ 5/12] ACQ, 16 bits, seed 0: FAILED, ValueError: no; about 0 s left",
    ]


def test_terminal_shows_a_bar_with_the_cells_that_run_and_removes_it(make_cell, tmp_path, monkeypatch):
    monkeypatch.setattr("cmimh_tf.experiments.runner.time", SimpleNamespace(monotonic=lambda: 100.0))
    log = tmp_path / "cell.log"
    log.write_text("epoch  1/40 2 s left  objective 3\nepoch  2/40 1 s left  objective 2\n")
    stream = Terminal()
    progress = CellProgress({make_cell("CMIMH"): "CMIMH (λ1 = 4)"}, stream)
    progress.begin(2, 0)
    progress.show_running([(make_cell("CMIMH"), 58.0, log)], 60.0)
    assert "0/2 |" in stream.getvalue()
    assert "about 1 min 00 s left | CMIMH (λ1 = 4) (epoch 2/40) 42 s" in stream.getvalue()
    progress.ended(make_cell("CMIMH"), 60.0, None, 0.0)
    assert "[1/2] CMIMH (λ1 = 4): done in 1 min 00 s; about 0 s left\n" in stream.getvalue()
    progress.close()
    assert stream.getvalue().endswith("\r")


@pytest.mark.parametrize(
    ("log", "position"),
    [
        ("epoch  2/40 1 s left", " (epoch 2/40)"),
        ("Epoch 3/40: loss 2.0\nEpoch 4/40: loss 1.9", " (epoch 4/40)"),
        ("DJSRH: 3 of 30 epochs, 00:20 left\nDJSRH: 9 of 30 epochs, 00:12 left\n", " (9/30 epochs)"),
        ("PDH: 2 of 5 rounds, 00:30 left", " (2/5 rounds)"),
        ("nothing to see", ""),
    ],
)
def test_position_is_read_from_the_log(log, position, tmp_path):
    (tmp_path / "cell.log").write_text(log)
    assert runner._position(tmp_path / "cell.log") == position
    assert runner._position(tmp_path / "missing.log") == ""
