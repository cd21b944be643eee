"""The command as a user runs it: a chief with two workers, killed, resumed, finished, and told about."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cmimh_tf.config import get_preset
from cmimh_tf.data import make_synthetic, save_npz
from cmimh_tf.overrides import override, parse_overrides

ROOT = Path(__file__).resolve().parents[2]


def command(folder, *flags):
    fixed = ["--data", str(folder / "pairs.npz"), "--preset", "smoke", "--out", str(folder / "search")]
    return [sys.executable, "-m", "tuner.search", *fixed, *flags]


def run(folder, *flags):
    return subprocess.run(command(folder, *flags), cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def members(folder):
    """Process ids of the search's chief and workers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(folder / "search").encode() in words:
                found.append(int(entry.name))
    return found


@pytest.mark.e2e
def test_two_workers_killed_and_resumed(tmp_path):
    save_npz(tmp_path / "pairs.npz", make_synthetic(240, seed=0, image_dim=12, text_dim=8))
    flags = ("--trials", "4", "--algorithm", "random")
    trials = tmp_path / "search" / "trials"
    with subprocess.Popen(
        command(tmp_path, *flags, "--workers", "2"), cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        # Two lines say what is searched, one is the table's head; then the first trial has ended.
        said = [process.stdout.readline() for _ in range(4)]
        assert said[3].split()[0] in ("0", "1"), said
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while members(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    done = {
        path: path.stat().st_mtime_ns
        for path in trials.glob("trial_*/trial.json")
        if json.loads(path.read_text())["status"] == "COMPLETED"
    }
    assert done
    assert not (tmp_path / "search" / "result.json").exists()

    resumed = run(tmp_path, *flags)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert resumed.stderr == ""
    assert {path: path.stat().st_mtime_ns for path in done} == done
    rows = list(csv.DictReader(io.StringIO((tmp_path / "search" / "trials.csv").read_text())))
    assert [row["status"] for row in rows] == ["completed"] * 4
    assert (tmp_path / "search" / "report.html").read_text().count("<img") == 5
    best = parse_overrides([f"@{tmp_path / 'search' / 'best.json'}"])
    assert override(get_preset("smoke"), best).loss.balance_weight == best["loss.balance_weight"]

    again = run(tmp_path, *flags)
    assert "holds this search, finished" in again.stdout
    assert "best val_map: " in again.stdout
    other = run(tmp_path, *flags, "--objective", "pair_score")
    assert other.returncode == 2
    assert "holds another search: `objective` is 'val_map' there" in other.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--trials", "0"], "error: `trials` must be at least 1."),
        (["--algorithm", "grid"], "error: `weights` must name one or two for a grid"),
        (["--algorithm", "hyperband", "--tune-also", "epochs"], "error: `algorithm` must not be hyperband when epochs"),
    ],
)
def test_refusals(flags, message, tmp_path, monkeypatch, capsys):
    from tuner import search

    monkeypatch.setattr(sys, "argv", ["search", "--data", "synthetic", "--out", str(tmp_path / "new"), *flags])
    with pytest.raises(SystemExit) as exit_info:
        search.main()
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.startswith(message)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("module", ["search", "criteria_agreement"])
def test_help_does_not_import_tensorflow(module):
    code = f"import sys, tuner.{module}; print('tensorflow' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert shown.stdout == "False\n"
