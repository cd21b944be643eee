"""Flags that cannot be right are refused before anything is measured."""

import argparse

import pytest

from cmimh_tf.experiments.__main__ import run_experiment

FLAGS = {
    "name": "main",
    "data": "synthetic",
    "out": None,
    "bits": None,
    "seeds": 1,
    "methods": None,
    "queries": None,
    "train_pairs": None,
    "preset": "smoke",
    "epochs": None,
    "set": [],
    "jobs": None,
    "quick": False,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": [12]}, "`code_length` must be a positive multiple of 8"),
        ({"jobs": 0}, "`--jobs` must be at least 1. Received: --jobs 0"),
        ({"set": ["loss.balance=1"]}, "`loss.balance` is not a configuration key"),
        ({"methods": ["CVX"]}, "`methods` must be among CVH"),
        ({"data": "missing.npz"}, "missing.npz"),
    ],
)
def test_bad_flags_are_refused(changes, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message):
        run_experiment(argparse.Namespace(**{**FLAGS, "out": tmp_path, **changes}))
    assert list(tmp_path.iterdir()) == []
