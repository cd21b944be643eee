"""The command: bad flags are rejected at once; results, resumption and failures as a user meets them."""

import argparse
import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from cmimh_tf.data import PairedData, make_synthetic, save_npz
from cmimh_tf.experiments.__main__ import run_experiment

FLAGS = {
    "name": "main",
    "data": "synthetic",
    "out": None,
    "bits": None,
    "seeds": 1,
    "first_seed": 0,
    "methods": None,
    "queries": None,
    "train_pairs": None,
    "preset": "smoke",
    "epochs": None,
    "set": [],
    "jobs": None,
    "quick": False,
    "rerank": "none",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bits": [12]}, "`code_length` must be a positive multiple of 8"),
        ({"jobs": 0}, "`--jobs` must be at least 1. Received: --jobs 0"),
        ({"set": ["loss.balance=1"]}, "`loss.balance` is not a configuration key"),
        # Wrong flags are rejected before the data is read.
        ({"methods": ["CVX"], "data": "missing.npz"}, "`methods` must be among CVH"),
        ({"data": "missing.npz"}, "missing.npz"),
        ({"queries": 0}, "`num_queries` must be at least 1. Received: num_queries=0"),
        ({"train_pairs": -5}, "`num_train` must be at least 1. Received: num_train=-5"),
        ({"name": "training-size", "train_pairs": 50}, "`num_train` must not be given: training-size sets it itself"),
        ({"name": "ablation", "rerank": "asymmetric"}, "`--rerank asymmetric` must be used with .* Received: ablation"),
        ({"methods": ["CVH"], "rerank": "asymmetric"}, "`--rerank asymmetric` must be used with .* Received: main"),
        (
            {"name": "ablation", "methods": ["CVH"]},
            "`--methods` must be used with .* compares methods. Received: ablation",
        ),
        (
            {"name": "paper-regime", "methods": ["CMIMH"], "data": "missing.npz"},
            "`--methods` must be used .*paper-regime",
        ),
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


def run(*arguments):
    command = [sys.executable, "-m", "cmimh_tf.experiments", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, env=environment)


@pytest.mark.e2e
def test_results_then_resumption(tmp_path):
    data = tmp_path / "pairs.npz"
    save_npz(data, make_synthetic(200, seed=0))
    flags = ("main", "--data", data, "--bits", 16, "--seeds", 2, "--out", tmp_path / "out", "--jobs", 2)

    first = run(*flags, "--methods", "CVH")
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert "2 cells" in first.stdout
    assert "[2/2] CVH, 16 bits, seed" in first.stdout
    assert " left" in first.stdout
    names = {path.name for path in (tmp_path / "out" / "main").iterdir()}
    assert names == {"results.csv", "results.json", "results.md", "report.html", "map_at_1000_over_bits.svg"}
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "cells").glob("*.json")}

    second = run(*flags, "--methods", "CVH", "ACQ")
    assert second.returncode == 0, second.stderr
    assert "4 cells, 2 of them measured before" in second.stdout
    assert all(path.stat().st_mtime_ns == moment for path, moment in before.items())
    assert "| ACQ |" in (tmp_path / "out" / "main" / "results.md").read_text()


@pytest.mark.e2e
def test_failing_cell_is_reported_and_gives_exit_code_1(tmp_path):
    pairs = make_synthetic(200, seed=0)
    data = tmp_path / "equal_images.npz"
    save_npz(data, dataclasses.replace(pairs, image=np.ones_like(pairs.image)))
    flags = ("--data", data, "--bits", 16, "--seeds", 1, "--methods", "CVH", "--out", tmp_path / "out")
    result = run("main", *flags)
    assert result.returncode == 1
    assert "failed: CVH, 16 bits, seed 0: ValueError: `image` must have rows that differ" in result.stderr
    assert "Failed: CVH, 16 bits, seed 0" in (tmp_path / "out" / "main" / "results.md").read_text()
    assert len(list((tmp_path / "out" / "cells").glob("*.failed.json"))) == 1
