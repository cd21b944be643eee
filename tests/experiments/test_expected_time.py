"""The time left, learned from cells that are done."""

import dataclasses

import pytest

from cmimh_tf.experiments.cell import SplitSetting
from cmimh_tf.experiments.expected_time import ExpectedTime


def test_mean_of_the_method_by_training_pairs(make_cell):
    expected = ExpectedTime()
    expected.learn(make_cell(seed=0), 10.0)
    expected.learn(make_cell(seed=1), 20.0)
    assert expected.seconds(make_cell(seed=2)) == pytest.approx(15.0)
    twice = dataclasses.replace(make_cell(), split=SplitSetting(20, 100))
    assert expected.seconds(twice) == pytest.approx(30.0)


def test_time_left_is_shared_among_jobs_but_no_less_than_the_longest_running(make_cell, monkeypatch):
    monkeypatch.setattr("cmimh_tf.experiments.expected_time.time.monotonic", lambda: 100.0)
    expected = ExpectedTime()
    expected.learn(make_cell("CVH"), 10.0)
    expected.learn(make_cell("ACQ"), 100.0)
    assert expected.left([make_cell("CVH")] * 4, [], 2) == pytest.approx(20.0)
    assert expected.left([], [(make_cell("ACQ"), 70.0)], 2) == pytest.approx(70.0)
    assert expected.left([], [(make_cell("CVH"), 0.0)], 1) == 0.0
