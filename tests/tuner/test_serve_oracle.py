"""How long a chief waits for workers that say nothing."""

import keras_tuner
import pytest

from tuner import serve_oracle
from tuner.oracles import make_oracle
from tuner.workers import PARENT_VARIABLE


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

    monkeypatch.setattr(serve_oracle.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(serve_oracle.time, "sleep", sleep)
    if has_parent:
        with pytest.raises(Ended):
            serve_oracle.serve_oracle(oracle)
    else:
        serve_oracle.serve_oracle(oracle)
        assert looks == []
