"""The command as a user runs it: results, resumption, failures."""

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

from cmimh_tf.data.files import save_npz
from cmimh_tf.data.synthetic import make_synthetic

pytestmark = pytest.mark.e2e


def run(*arguments):
    command = [sys.executable, "-m", "cmimh_tf.experiments", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False, env=environment)


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


def test_failing_cell_is_told_and_gives_exit_code_1(tmp_path):
    pairs = make_synthetic(200, seed=0)
    data = tmp_path / "equal_images.npz"
    save_npz(data, dataclasses.replace(pairs, image=np.ones_like(pairs.image)))
    flags = ("--data", data, "--bits", 16, "--seeds", 1, "--methods", "CVH", "--out", tmp_path / "out")
    result = run("main", *flags)
    assert result.returncode == 1
    assert "failed: CVH, 16 bits, seed 0: ValueError: `image` must have rows that differ" in result.stderr
    assert "Failed: CVH, 16 bits, seed 0" in (tmp_path / "out" / "main" / "results.md").read_text()
    assert len(list((tmp_path / "out" / "cells").glob("*.failed.json"))) == 1
