"""The algorithms on an objective whose optimum is known."""

import itertools
import json
import math

import pytest
from keras_tuner.engine.trial import TrialStatus

from cmimh_tf.config import get_preset
from cmimh_tf.files import write_json
from tuner.oracles import make_oracle
from tuner.search_space import ALGORITHMS, make_space

# KerasTuner 1.4.8 calls threading.currentThread, and its Gaussian process may meet its own bounds.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated, (use|get):DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]
PRESET = {"loss.mutual_information_weight": 10.0, "loss.balance_weight": 0.1}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_preset_comes_first_and_no_setting_twice(planted, algorithm):
    tuner = planted(algorithm, trials=6)
    tuner.search()
    tried = tuner.hypermodel.tried
    assert tried[0] == PRESET
    assert len({tuple(values.items()) for values in tried}) == len(tried) == 6


def test_bayesian_finds_the_planted_optimum(planted):
    tuner = planted("bayesian", trials=14)
    tuner.search()
    (best,) = tuner.get_best_hyperparameters()
    for key, value in tuner.hypermodel.optimum.items():
        assert math.log10(best.values[key] / value) == pytest.approx(0.0, abs=0.2)


def test_random_settings_fill_the_space(planted):
    tuner = planted("random", trials=17)
    tuner.search()
    # Of a Sobol sequence 16 points have one in each of 4 x 4 cells, on the scale on which the space is searched.
    cells = {
        tuple(
            int(4 * math.log(values[item.key] / item.low) / math.log(item.high / item.low))
            for item in tuner.hypermodel.space.dimensions
        )
        for values in tuner.hypermodel.tried[1:]
    }
    assert len(cells) == 16


def test_grid_has_every_point_once(planted):
    tuner = planted("grid", trials=9)
    tuner.search()
    axes = [item.values for item in tuner.hypermodel.space.dimensions]
    tried = [tuple(values.values()) for values in tuner.hypermodel.tried]
    assert tried[0] == (10.0, 0.1)
    assert sorted(tried) == sorted(itertools.product(*axes))


def test_hyperband_trains_the_best_longest(planted):
    tuner = planted("hyperband", trials=20)
    tuner.search()
    best = tuner.oracle.get_best_trials(1)[0]
    epochs = [trial.hyperparameters.values["tuner/epochs"] for trial in tuner.oracle.trials.values()]
    assert best.hyperparameters.values["tuner/epochs"] == max(epochs) == 9
    assert min(epochs) < 9
    assert set(tuner.get_best_hyperparameters()[0].values) == set(tuner.hypermodel.optimum)


def test_failed_trials_count_as_the_worst(planted):
    def fail_at_large_weights(values, _):
        if values["loss.mutual_information_weight"] > 12:
            raise ArithmeticError("too large")

    tuner = planted("bayesian", trials=8, fail=fail_at_large_weights)
    tuner.search()
    x, y = tuner.oracle._vectorize_trials()
    failed = [trial.status == TrialStatus.FAILED for trial in tuner.oracle.trials.values()]
    assert any(failed)
    assert len(x) == 8
    assert set(y[failed]) == {max(y)}


def test_row_of_failures_stops_the_search(planted):
    def always_fail(values, _):
        raise ArithmeticError("never works")

    tuner = planted("random", trials=20, fail=always_fail)
    tuner.search()
    assert len(tuner.oracle.trials) == tuner.oracle.max_failed_in_a_row == 5


def test_reload_repeats_what_was_running_and_nothing_else(planted, tmp_path):
    tuner = planted("random", trials=3)
    tuner.search()
    # As after a kill: one trial is still running, and the state lists a finished one as running too.
    file = tmp_path / "trials" / "trial_1" / "trial.json"
    write_json(file, {**json.loads(file.read_text()), "status": "RUNNING", "score": None}, checksum=True)
    state_file = tmp_path / "trials" / "oracle.json"
    state = json.loads(state_file.read_text())
    write_json(state_file, {**state, "ongoing_trials": {"worker0": "2"}}, checksum=True)
    assert planted("random", trials=3).oracle._retry_queue == ["1"]


def test_unknown_algorithm():
    space = make_space(get_preset("default")).hyperparameters()
    with pytest.raises(ValueError, match=r"`algorithm` must be one of bayesian, .* Received: algorithm='annealing'."):
        make_oracle("annealing", "val_map", space, trials=1, seed=0, max_epochs=1)
