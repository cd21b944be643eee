"""Flags that cannot be right are refused before anything is measured."""

import argparse

import pytest

from cmimh_tf.data import PairedData, make_synthetic, save_npz
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
        ({"queries": 0}, "`num_queries` must be at least 1. Received: num_queries=0"),
        ({"train_pairs": -5}, "`num_train` must be at least 1. Received: num_train=-5"),
        ({"name": "training-size", "train_pairs": 50}, "`num_train` must not be given: training-size sets it itself"),
        ({"name": "curves", "methods": ["CCA, real-valued"]}, "`methods` must name some that curves measures"),
    ],
)
def test_bad_flags_are_refused(changes, message, tmp_path):
    with pytest.raises((ValueError, OSError), match=message):
        run_experiment(argparse.Namespace(**{**FLAGS, "out": tmp_path, **changes}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["main", "ablation", "independence", "training-size"])
def test_map_needs_labels(name, tmp_path):
    pairs = make_synthetic(60, seed=0)
    save_npz(tmp_path / "bare.npz", PairedData(pairs.image, pairs.text))
    flags = {**FLAGS, "name": name, "data": str(tmp_path / "bare.npz"), "out": tmp_path / "out"}
    with pytest.raises(ValueError, match=rf"`data` must have labels for {name}, .* recall-one needs none"):
        run_experiment(argparse.Namespace(**flags))
    assert not (tmp_path / "out").exists()
