"""Processes that measure: results on disk, errors by their message, a killed one is reported."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

from cmimh_tf.data.npz import save_npz
from cmimh_tf.data.synthetic import make_synthetic
from cmimh_tf.experiments.results import CellStore
from cmimh_tf.experiments.worker import Worker, _end_with, _thread_limit, source_fingerprint


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "pairs.npz"
    save_npz(path, make_synthetic(100, seed=0))
    return path


def outcome(worker):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        is_over, error = worker.poll()
        if is_over:
            return error
        time.sleep(0.05)
    raise TimeoutError


def test_one_process_measures_fails_and_is_reported_when_killed(data, tmp_path, make_cell):
    store = CellStore(tmp_path / "cells", "data")
    worker = Worker(str(data), store, 1)
    try:
        worker.start(make_cell("CVH"))
        assert outcome(worker) is None
        result = store.load(make_cell("CVH"))
        assert result["threads"] == 1
        assert len(result["source"]) == 12
        assert result["total_seconds"] > 0

        worker.start(make_cell("XYZ"))
        assert outcome(worker).startswith("ValueError: `method` must be one of")
        assert "Traceback" in store.log_path(make_cell("XYZ")).read_text()
        assert worker.is_alive()

        os.kill(worker.process.pid, signal.SIGKILL)
        assert outcome(worker) == "the process ended by itself (signal 9; out of memory?)"
        assert not worker.is_alive()
    finally:
        worker.close()


def test_source_changes_with_what_measures_only(tmp_path):
    def fingerprint(name, changed=None):
        root = tmp_path / name
        for file in ("ops.py", "experiments/probes.py", "experiments/report.py", "reports/html.py"):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).write_text("changed" if file == changed else "")
        return source_fingerprint(root)

    before = fingerprint("before")
    assert fingerprint("probe", "experiments/probes.py") != before
    assert fingerprint("ops", "ops.py") != before
    assert fingerprint("report", "experiments/report.py") == fingerprint("html", "reports/html.py") == before
    assert before != source_fingerprint()


def test_process_ends_when_its_parent_is_gone(monkeypatch):
    parents = iter([7, 7, 1])
    codes = []
    system = SimpleNamespace(getppid=lambda: next(parents), _exit=codes.append)
    monkeypatch.setattr("cmimh_tf.experiments.worker.os", system)
    monkeypatch.setattr("cmimh_tf.experiments.worker.time", SimpleNamespace(sleep=lambda seconds: None))
    _end_with(7)
    assert codes == [1]
    assert list(parents) == []


def test_thread_limit_is_for_the_child_only(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    with _thread_limit(2):
        assert os.environ["OMP_NUM_THREADS"] == os.environ["TF_NUM_INTRAOP_THREADS"] == "2"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "TF_NUM_INTRAOP_THREADS" not in os.environ
    with _thread_limit(None):
        assert os.environ["OMP_NUM_THREADS"] == "7"
