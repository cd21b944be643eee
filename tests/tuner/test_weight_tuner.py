"""The tuner: failures are recorded, interrupted searches resume, and a chief without workers ends."""

import json
from types import SimpleNamespace

import keras_tuner
import pytest

from cmimh_tf.checksums import CHECKSUM_FILE
from cmimh_tf.training.callbacks import TrainingDiverged
from tuner import weight_tuner
from tuner.oracles import make_oracle
from tuner.trials import read_trials
from tuner.weight_tuner import NoTrialSucceeded
from tuner.workers import PARENT_VARIABLE

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated, (use|get):DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def test_failed_trial_is_recorded_with_its_reason_and_the_search_goes_on(planted, tmp_path):
    def fail_second(values, number):
        if number == 2:
            raise TrainingDiverged("Training diverged at step 7 (epoch 1): balance is not finite.")

    tuner = planted("random", trials=4, fail=fail_second)
    tuner.search()
    records = read_trials(tmp_path / "trials", tuner.hypermodel.space.keys)
    assert [record.status for record in records] == ["completed", "failed", "completed", "completed"]
    assert records[1].reason == "Training diverged at step 7 (epoch 1): balance is not finite."
    assert records[1].metrics == {}


def test_unexpected_failure_is_named_by_its_type(planted, tmp_path):
    def fail_once(values, number):
        if number == 1:
            raise RuntimeError("no luck")

    tuner = planted("random", trials=2, fail=fail_once)
    tuner.search()
    assert read_trials(tmp_path / "trials", tuner.hypermodel.space.keys)[0].reason == "RuntimeError: no luck"


@pytest.mark.parametrize("algorithm", ["random", "bayesian", "hyperband", "grid"])
def test_broken_search_goes_on_where_it_was(planted, tmp_path, algorithm):
    def interrupt_fourth(values, number):
        if number == 4:
            raise KeyboardInterrupt

    unbroken = planted(algorithm, trials=7)
    unbroken.search()
    for path in sorted((tmp_path / "trials").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()

    broken = planted(algorithm, trials=7, fail=interrupt_fourth)
    with pytest.raises(KeyboardInterrupt):
        broken.search()
    resumed = planted(algorithm, trials=7)
    resumed.search()
    assert resumed.hypermodel.tried[0] == broken.hypermodel.tried[3]
    assert len(broken.hypermodel.tried[:3] + resumed.hypermodel.tried) == 7
    if algorithm != "bayesian":  # Its random starting points are drawn anew in each process.
        assert broken.hypermodel.tried[:3] + resumed.hypermodel.tried == unbroken.hypermodel.tried


def test_finished_search_is_not_run_again(planted):
    planted("random", trials=3).search()
    again = planted("random", trials=3)
    again.search()
    assert again.hypermodel.tried == []


def test_search_can_be_prolonged(planted):
    planted("random", trials=3).search()
    longer = planted("random", trials=5)
    longer.search()
    assert len(longer.hypermodel.tried) == 2


def test_nothing_but_whole_files_is_left(planted, tmp_path):
    planted("random", trials=2).search()
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.name != CHECKSUM_FILE:
            json.loads(file.read_text())


def test_no_best_among_failures(planted):
    def always_fail(values, _):
        raise ArithmeticError("never works")

    tuner = planted("random", trials=2, fail=always_fail)
    tuner.search()
    with pytest.raises(NoTrialSucceeded, match="No trial succeeded"):
        tuner.get_best_hyperparameters()


class Ended(Exception):
    """The test has seen enough."""


@pytest.mark.parametrize("has_parent", [True, False])
def test_only_a_chief_on_its_own_gives_up(has_parent, tmp_path, monkeypatch):
    hyperparameters = keras_tuner.HyperParameters()
    hyperparameters.Float("weight", 0.1, 1.0)
    oracle = make_oracle("random", "val_map", hyperparameters, trials=2, seed=0, max_epochs=1)
    oracle._set_project_dir(str(tmp_path), "trials")
    monkeypatch.setenv("KERASTUNER_ORACLE_IP", "127.0.0.1")
    monkeypatch.setenv("KERASTUNER_ORACLE_PORT", "0")
    monkeypatch.delenv(PARENT_VARIABLE, raising=False)
    if has_parent:
        monkeypatch.setenv(PARENT_VARIABLE, "1")
    # Two silent hours go by at each look at the clock.
    now = iter(range(0, 10**9, 7200))
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            raise Ended

    monkeypatch.setattr(weight_tuner, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=sleep))
    if has_parent:
        with pytest.raises(Ended):
            weight_tuner.serve_oracle(oracle)
    else:
        weight_tuner.serve_oracle(oracle)
        assert looks == []
